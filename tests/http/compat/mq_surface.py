"""Calls of the /mq dialect, as its clients send them."""

from typing import Any

import httpx


class Mq:
    """A client that expects HTTP 200 and the outcome in the body."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = await self.http.request(method, f"/mq/{path}", **options)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        return dict(answer.json())

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return await self.call("GET", path, params=parameters)

    async def post(self, path: str, **form: Any) -> dict[str, Any]:
        return await self.call("POST", path, data=form)

    async def produce(self, message: str, **form: Any) -> dict[str, Any]:
        answer = await self.post("produce", producer="P", message=message, **form)
        assert answer["status"] == 200, answer
        return dict(answer["result"])

    async def fetch(self, **parameters: Any) -> dict[str, Any]:
        """A fetch of the clustering consumer that must succeed."""
        answer = await self.get("message", **{"topic": "T", "consumer": "C", **parameters})
        assert answer["status"] == 200, answer
        return dict(answer["result"])

    async def register(self, path: str, **body: Any) -> None:
        answer = await self.http.put(f"/v1/{path}", json=body)
        assert answer.status_code in {200, 201}, answer.text
