"""Calls of /v1, and a check of problem documents."""

from typing import Any

import httpx

Json = dict[str, Any]


async def put(api: httpx.AsyncClient, path: str, **body: Any) -> Json:
    """Register an entry."""
    response = await api.put(f"/v1/{path}", json=body)
    assert response.status_code in {200, 201}, response.text
    return dict(response.json())


async def publish(api: httpx.AsyncClient, *bodies: Any, topic: str = "orders", **envelope: Any) -> list[Json]:
    """Publish one by one, in order."""
    responses = [await api.post(f"/v1/topics/{topic}/messages", json={"body": body, **envelope}) for body in bodies]
    assert {response.status_code for response in responses} <= {201}, responses[-1].text
    return [response.json() for response in responses]


async def receive(api: httpx.AsyncClient, group: str = "workers", **wish: Any) -> Json:
    response = await api.post(f"/v1/groups/{group}/receive", json=wish)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def settle(api: httpx.AsyncClient, verb: str, receipt: str, group: str = "workers", **more: Any) -> Any:
    return await api.post(f"/v1/groups/{group}/{verb}", json={"receipt": receipt, **more})


async def lag(api: httpx.AsyncClient, group: str = "workers", **query: str) -> Json:
    response = await api.get(f"/v1/groups/{group}/lag", params=query)
    assert response.status_code == 200, response.text
    return dict(response.json())


def bodies(received: Json) -> list[str]:
    return [message["body"] for message in received["messages"]]


def refused(response: httpx.Response, status: int, code: str, **members: Any) -> Json:
    """Check that a response is a problem document, and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"]
    problem = dict(response.json())
    assert problem["status"] == status
    assert problem["code"] == code, problem
    assert problem["title"]
    assert problem["detail"]
    assert isinstance(problem["retryable"], bool)
    assert ("retry-after" in response.headers) == (status in {429, 503})
    for name, value in members.items():
        assert problem[name] == value, problem
    return problem
