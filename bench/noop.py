"""The HTTP stack alone: reads the body, answers 204. What nothing on top of it can beat."""

import sys
from typing import Any

import uvicorn


async def app(_scope: dict[str, Any], receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    uvicorn.run(
        app,  # type: ignore[arg-type]
        host="127.0.0.1",
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
    )
