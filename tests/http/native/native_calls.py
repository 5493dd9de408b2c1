"""Calls of /v1, and a check of problem documents."""

from typing import Any

import httpx

Json = dict[str, Any]


async def put(api: httpx.AsyncClient, path: str, **body: Any) -> Json:
    """Register an entry."""
    answer = await api.put(f"/v1/{path}", json=body)
    assert answer.status_code in {200, 201}, answer.text
    return dict(answer.json())


async def publish(api: httpx.AsyncClient, *bodies: Any, topic: str = "orders", **envelope: Any) -> list[Json]:
    """Publish one by one, in order."""
    answers = [await api.post(f"/v1/topics/{topic}/messages", json={"body": body, **envelope}) for body in bodies]
    assert {answer.status_code for answer in answers} <= {201}, answers[-1].text
    return [answer.json() for answer in answers]


async def receive(api: httpx.AsyncClient, group: str = "workers", **wish: Any) -> Json:
    answer = await api.post(f"/v1/groups/{group}/receive", json=wish)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def settle(api: httpx.AsyncClient, verb: str, receipt: str, group: str = "workers", **more: Any) -> Any:
    return await api.post(f"/v1/groups/{group}/{verb}", json={"receipt": receipt, **more})


async def lag(api: httpx.AsyncClient, group: str = "workers", **query: str) -> Json:
    answer = await api.get(f"/v1/groups/{group}/lag", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def bodies(received: Json) -> list[str]:
    return [message["body"] for message in received["messages"]]


def refused(answer: httpx.Response, status: int, code: str, **members: Any) -> Json:
    """Check that a response is a problem document, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"]
    problem = dict(answer.json())
    assert problem["status"] == status
    assert problem["code"] == code, problem
    assert problem["title"]
    assert problem["detail"]
    assert isinstance(problem["retryable"], bool)
    assert ("retry-after" in answer.headers) == (status in {429, 503})
    for name, value in members.items():
        assert problem[name] == value, problem
    return problem
