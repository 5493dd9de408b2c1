"""A client of /mq that disconnects while its fetch is being answered."""

import asyncio
from urllib.parse import urlencode

import httpx
from mq_calls import Mq

from eventually import until
from mqgate import bootstrap


async def fetch_disconnected(gateway: bootstrap.Gateway, **parameters: str) -> list[object]:
    """Fetch with a client that has disconnected by the time of the response; return what was sent nevertheless."""
    sent: list[object] = []
    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/mq/message",
        "query_string": urlencode(parameters).encode(),
        "headers": [],
        "client": ("127.0.0.1", 5000),
    }

    async def receive() -> dict[str, object]:
        return next(requests, {"type": "http.disconnect"})

    async def send(event: object) -> None:
        sent.append(event)

    await gateway.app(scope, receive, send)
    return sent


async def until_parked(gateway: bootstrap.Gateway) -> None:
    async def is_parked() -> bool:
        return gateway.long_poll.parked == 1

    await until(is_parked)


async def test_the_lease_of_a_disconnected_client_reaches_a_parked_fetch(mq: Mq, gateway: bootstrap.Gateway) -> None:
    """Otherwise the next consumer would wait until the lease expires, here five minutes."""
    await mq.register("topics/S", queues=1)
    await mq.register("producers/PS", topic="S")
    await mq.register("groups/CS", topic="S", mode="queue", visibility="300s")
    await mq.post("produce", producer="PS", message="first")
    held = await mq.fetch(topic="S", consumer="CS")
    parked = asyncio.create_task(mq.fetch(topic="S", consumer="CS", pullTimeout="60"))
    await until_parked(gateway)
    await mq.post("produce", producer="PS", message="second")

    sent = await fetch_disconnected(gateway, topic="S", consumer="CS", requestId=held["requestId"])
    async with asyncio.timeout(30):
        found = await parked

    assert sent == []
    assert [message["message"] for message in found["msgList"]] == ["second"]


async def test_a_notice_that_a_disconnected_client_missed_is_in_the_next_response(
    mq: Mq, gateway: bootstrap.Gateway, api: httpx.AsyncClient
) -> None:
    """A broadcast client must learn that it was registered, although its first connection broke."""
    await mq.register("groups/E", topic="T", mode="broadcast", start="earliest")
    await mq.produce("first")

    sent = await fetch_disconnected(gateway, topic="T", consumer="E", clientId="ada")
    response = (await api.post("/v1/groups/E/receive", json={"clientId": "ada"})).json()

    assert sent == []
    assert response["registered"] is True
    assert [message["body"] for message in response["messages"]] == ["first"]
