"""The HTTP stack alone (uvicorn, Starlette routing, an empty endpoint): reads the body and returns 204."""

import sys
from typing import Any

import uvicorn
from starlette.routing import Route, Router


class Endpoint:
    async def __call__(self, _scope: dict[str, Any], receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


app = Router([Route("/v1/topics/{topic}/messages", Endpoint())], redirect_slashes=False)


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
    )
