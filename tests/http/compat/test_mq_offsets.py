"""The offset lists and consumer settings that consoles read."""

import pytest
from mq_calls import Mq

from mqgate.testing.clock import NOON, ManualClock

NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize("kind", ["clustering", "broadcast"])
async def test_a_clustering_consumers_queues_are_listed_in_the_order_of_choice(
    mq: Mq, clock: ManualClock, kind: str
) -> None:
    """Both addresses run the same code for a clustering consumer; what is fetched next stands first."""
    await mq.register("topics/T", queues=3)
    for count, order in ((1, "a"), (3, "b"), (2, "c")):
        for _ in range(count):
            await mq.produce("m", orderId=order)
    taken = await mq.fetch(clientIp="10.9.8.7")
    clock.advance(7)
    await mq.get("ack", topic="T", consumer="C", requestId=taken["requestId"])
    locked = await mq.fetch()

    rows = (await mq.get(f"{kind}/queue/offset", consumer="C"))["result"]

    assert [(row["maxOffset"], row["committedOffset"]) for row in rows] == [(1, 0), (3, 3), (2, 0)]
    assert rows[1]["lastConsumeTimestamp"] == NOON_MS + 7_000
    assert rows[1]["lastConsumeClientIp"] == "10.9.8.7"
    assert [row["lockTimestamp"] for row in rows] == [0, 0, NOON_MS + 7_000]
    assert [row["firstConsume"] for row in rows] == [True, False, False]
    assert rows[2]["messageQueue"] == locked["queueInfo"]["messageQueue"]


@pytest.mark.parametrize("kind", ["clustering", "broadcast"])
async def test_a_broadcast_consumer_has_a_list_for_every_client(mq: Mq, kind: str) -> None:
    """Every client has its own offsets. Without clients the status is 201."""
    assert await mq.get(f"{kind}/queue/offset", consumer="B") == {"status": 201}
    await mq.fetch(consumer="B", clientId="one")
    await mq.produce("m", orderId="a")
    await mq.fetch(consumer="B", clientId="two")

    found = (await mq.get(f"{kind}/queue/offset", consumer="B"))["result"]

    backlog = {client: sum(row["maxOffset"] - row["committedOffset"] for row in rows) for client, rows in found.items()}
    assert backlog == {"one": 1, "two": 0}


async def test_an_expired_client_is_not_listed(mq: Mq, clock: ManualClock) -> None:
    """Its offsets are deleted, and showing old ones would hide that."""
    await mq.register("groups/B", clientTtl="60s")
    await mq.fetch(consumer="B", clientId="one")
    clock.advance(61)

    assert await mq.get("broadcast/queue/offset", consumer="B") == {"status": 201}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [({"consumer": "nobody"}, "consumer:nobody haven't registered"), ({}, "consumer is required")],
)
async def test_offsets_without_a_consumer_return_status_500(mq: Mq, parameters: dict[str, str], said: str) -> None:
    """The dialect returns 500 and not 400 for this parameter."""
    response = await mq.get("clustering/queue/offset", **parameters)

    assert response == {"status": 500, "message": said}


async def test_a_consumers_settings_are_shown_in_both_spellings(mq: Mq) -> None:
    """One console reads the misspelt member, the other the right one; both read the same truth."""
    await mq.http.patch("/v1/groups/C", json={"rateLimit": 50, "visibility": "90s"})
    await mq.http.post("/v1/groups/C/pause")

    result = (await mq.get("config/C"))["result"]

    assert len(result.pop("queueOffsets")) == 2
    assert result == {
        "messageModel": "CLUSTERING",
        "topic": "T",
        "group": "C",
        "broadcasting": False,
        "maxPullSize": 32,
        "consumeTimeoutInMillis": 90_000,
        "consumerPullTimeoutMillis": 10_000,
        "pause": True,
        "rateLimierEnabled": True,
        "rateLimiterEnabled": True,
        "limitRate": 50.0,
        "pop": False,
    }


async def test_the_settings_of_a_broadcast_consumer_include_access_times(mq: Mq, clock: ManualClock) -> None:
    """Operators find a client that stopped polling by its access time."""
    clock.advance(3)
    await mq.fetch(consumer="B", clientId="one")

    result = (await mq.get("config/B"))["result"]

    assert (result["messageModel"], result["broadcasting"]) == ("BROADCASTING", True)
    assert result["clientIdMap"] == {"one": {"clientId": "one", "accessTime": NOON_MS + 3_000}}
    assert set(result["queueOffsets"]) == {"one"}
    assert (result["rateLimiterEnabled"], result["limitRate"]) == (False, 1024.0)


async def test_settings_of_an_unknown_consumer_are_empty(mq: Mq) -> None:
    """Consoles request consumers that are not registered yet."""
    assert await mq.get("config/nobody") == {"status": 201}
