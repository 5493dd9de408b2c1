"""Calls of the /mq dialect, as its clients send them."""

from typing import Any

import httpx


class Mq:
    """A client that expects HTTP 200 and the outcome in the body."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = await self.http.request(method, f"/mq/{path}", **options)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        return dict(response.json())

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return await self.call("GET", path, params=parameters)

    async def post(self, path: str, **form: Any) -> dict[str, Any]:
        return await self.call("POST", path, data=form)

    async def produce(self, message: str, **form: Any) -> dict[str, Any]:
        response = await self.post("produce", producer="P", message=message, **form)
        assert response["status"] == 200, response
        return dict(response["result"])

    async def fetch(self, **parameters: Any) -> dict[str, Any]:
        """A fetch of the clustering consumer that must succeed."""
        response = await self.get("message", **{"topic": "T", "consumer": "C", **parameters})
        assert response["status"] == 200, response
        return dict(response["result"])

    async def register(self, path: str, **body: Any) -> None:
        response = await self.http.put(f"/v1/{path}", json=body)
        assert response.status_code in {200, 201}, response.text
