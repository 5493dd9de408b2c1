"""/mq/message beyond what the bundled clients use: every member, every error."""

from typing import Any

import pytest
from mq_calls import Mq

from mqgate.bootstrap import Gateway
from mqgate.testing.clock import NOON, ManualClock

NOON_MS = int(NOON.timestamp() * 1000)


async def test_a_fetch_shows_everything_that_the_dialect_promises(mq: Mq, clock: ManualClock) -> None:
    """Consoles and scripts read these members; which are left out when empty is part of it."""
    sent = await mq.produce("héllo")
    clock.advance(2)

    result = await mq.fetch(clientIp="10.9.8.7")

    assert isinstance(result.pop("requestId"), str)
    assert result == {
        "status": "FOUND",
        "msgList": [{"messageId": sent["msgId"], "message": "héllo", "timestamp": NOON_MS}],
        "msgListSize": 1,
        "retryMsgListSize": 0,
        "queueInfo": {
            "messageQueue": {"topic": "T", "brokerName": "local", "queueId": 0},
            "maxOffset": 1,
            "committedOffset": 0,
            "lockTimestamp": NOON_MS + 2_000,
            "lastConsumeTimestamp": 0,
            "firstConsume": True,
            "newerMaxOffset": -1,
        },
        "ackInfo": {"status": 400, "message": "ack illegal null-0:0,0,0,false"},
    }


async def test_the_queue_info_follows_the_log_and_tells_who_came_before(mq: Mq, clock: ManualClock) -> None:
    """Consoles show the backlog and the last consumer from it."""
    await mq.register("topics/T", queues=2)
    for _ in range(80):
        await mq.produce("m", orderId="same")
    first = await mq.fetch(clientIp="10.9.8.7")
    clock.advance(5)
    await mq.produce("late", orderId="same")

    info = (await mq.fetch(requestId=first["requestId"]))["queueInfo"]

    assert (info["committedOffset"], info["maxOffset"]) == (32, 81)
    assert (info["lastConsumeTimestamp"], info["lastConsumeClientIp"]) == (NOON_MS, "10.9.8.7")
    assert info["firstConsume"] is False


async def test_an_empty_fetch_has_no_request_id_and_leaves_no_lock(mq: Mq) -> None:
    """Nothing there is a 200 without anything to ack; a lock left behind would stop the next message."""
    result = await mq.fetch()

    assert result["status"] == "NO_NEW_MSG"
    assert (result["msgListSize"], result["retryMsgListSize"]) == (0, 0)
    assert not {"requestId", "msgList", "retryMsgList"} & set(result)
    assert result["queueInfo"]["committedOffset"] == result["queueInfo"]["maxOffset"] == 0
    await mq.produce("m")
    assert (await mq.fetch())["msgListSize"] == 1


async def test_a_fetch_gets_at_most_thirty_two_messages(mq: Mq) -> None:
    """The dialect's pull size; clients size their work by it."""
    for _ in range(40):
        await mq.produce("m", orderId="same")

    first = await mq.fetch()

    assert first["msgListSize"] == len(first["msgList"]) == 32
    assert (await mq.fetch(requestId=first["requestId"]))["msgListSize"] == 8


@pytest.mark.parametrize(
    ("parameters", "status", "said"),
    [
        ({"consumer": "C"}, 400, "topic must not be blank"),
        ({"topic": "T"}, 400, "consumer must not be blank"),
        ({"topic": "T", "consumer": "nobody"}, 500, "consumer:nobody haven't registered"),
        ({"topic": "other", "consumer": "C"}, 500, "consumer:C subscribe:T but fetch:other"),
        ({"topic": "T", "consumer": "C", "clientId": "one"}, 500, "consumer:C no need clientId"),
        ({"topic": "T", "consumer": "B"}, 500, "consumer:B clientId is null"),
        ({"topic": "T", "consumer": "B", "clientId": " "}, 500, "consumer:B clientId is null"),
        (
            {"topic": "T", "consumer": "B", "clientId": "a\nb"},
            400,
            "clientId must be 1 to 128 printable characters",
        ),
        ({"topic": "T", "consumer": "C", "useCookie": "maybe"}, 400, "useCookie must be true or false"),
    ],
)
@pytest.mark.parametrize("path", ["message", "ack", "unlock"])
async def test_consumers_without_permission_get_the_reason(
    mq: Mq, path: str, parameters: dict[str, str], status: int, said: str
) -> None:
    """All three calls check the consumer in the same way and return the same text."""
    assert await mq.get(path, **parameters) == {"status": status, "message": said}


async def test_a_message_mode_group_is_not_served(mq: Mq) -> None:
    """It has no locked queues, so the dialect could not keep its order."""
    await mq.register("groups/M", topic="T", mode="message")

    response = await mq.get("message", topic="T", consumer="M")

    assert response == {"status": 500, "message": "consumer:M haven't registered"}


async def test_a_blank_client_id_is_none_for_a_clustering_consumer(mq: Mq) -> None:
    """Clients that always send the parameter send it empty here."""
    assert (await mq.fetch(clientId=""))["status"] == "NO_NEW_MSG"


async def test_a_fetch_while_all_queues_are_locked_returns_a_retryable_failure(mq: Mq) -> None:
    """Clients recognise the text and retry. It must differ from an empty topic."""
    await mq.produce("m")
    await mq.fetch()

    response = await mq.get("message", topic="T", consumer="C")

    assert response == {"status": 500, "message": "no consumerQueueOffsetResult"}


async def test_a_disconnected_client_releases_its_batch(mq: Mq, gateway: Gateway) -> None:
    """The bundled clients time out after one second, and the batch must be free immediately."""
    await mq.produce("m")
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/mq/message",
        "query_string": b"topic=T&consumer=C",
        "headers": [],
        "client": ("127.0.0.1", 5000),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    await gateway.app(scope, receive, send)

    assert sent == []
    assert (await mq.fetch())["msgListSize"] == 1


@pytest.mark.parametrize(
    ("change", "status"), [({"rateLimit": {"rate": 1, "burst": 1}}, "RATE_LIMITED"), (None, "PAUSED")]
)
async def test_an_empty_fetch_returns_paused_or_rate_limited(
    mq: Mq, change: dict[str, object] | None, status: str
) -> None:
    """Both are states of a healthy consumer: 200, without a lock."""
    for _ in range(2):
        await mq.produce("m")
    if change is None:
        await mq.http.post("/v1/groups/C/pause")
    else:
        await mq.http.patch("/v1/groups/C", json=change)
        await mq.fetch()

    result = await mq.fetch()

    assert result["status"] == status
    assert "requestId" not in result
    assert result["queueInfo"]["committedOffset"] == -1


@pytest.mark.parametrize(
    ("headers", "parameters", "address"),
    [
        ({}, {}, "127.0.0.1"),
        ({"x-real-ip": "10.0.0.2"}, {}, "10.0.0.2"),
        ({"x-forwarded-for": "10.0.0.1, 10.0.0.9", "x-real-ip": "10.0.0.2"}, {}, "10.0.0.1"),
        ({"x-forwarded-for": "10.0.0.1"}, {"clientIp": "10.0.0.3"}, "10.0.0.3"),
        ({"x-forwarded-for": "x" * 65, "x-real-ip": "10.0.0.2"}, {}, "10.0.0.2"),
    ],
)
async def test_the_reported_client_address_is_shown_to_operators(
    mq: Mq, headers: dict[str, str], parameters: dict[str, str], address: str
) -> None:
    """Behind a proxy the address of the connection is the proxy's."""
    query = {"topic": "T", "consumer": "C", **parameters}
    await mq.call("GET", "message", params=query, headers=headers)

    (client,) = (await mq.http.get("/v1/groups/C/clients")).json()["items"]
    assert client["address"] == address
