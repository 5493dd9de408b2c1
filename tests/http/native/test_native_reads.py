"""Reads of messages by id, by key and time, and by offset."""

from datetime import datetime
from typing import Any

import httpx
import pytest
from native_calls import lag, publish, put, refused

from mqgate import bootstrap
from mqgate.core.errors import QueueUnavailable
from mqgate.ports.message_log import TopicBounds
from mqgate.testing.clock import ManualClock

URL = "/v1/topics/orders"


async def test_a_message_is_found_by_its_id(shop: httpx.AsyncClient) -> None:
    """All members are returned, and no group is affected."""
    (stored,) = await publish(shop, "a", key="k", tag="t", properties={"p": "v"})

    found = (await shop.get(f"{URL}/messages/{stored['id']}")).json()

    assert found == {
        "id": stored["id"],
        "topic": "orders",
        "queue": "local:0",
        "offset": 0,
        "key": "k",
        "tag": "t",
        "properties": {"p": "v"},
        "storedAt": stored["storedAt"],
        "body": "a",
    }
    assert (await lag(shop))["ready"] == 1
    refused(await shop.get(f"{URL}/messages/nothing"), 404, "message_not_found")


async def test_messages_are_found_by_key_and_time_page_by_page(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The start of the range is inclusive, the end is exclusive. Without a key all messages match."""
    for body, key in zip("abcd", ("red", "blue", "red", "red"), strict=True):
        await publish(shop, body, key=key)
        clock.advance(60)

    async def found(**query: str) -> str:
        items = (await shop.get(f"{URL}/messages", params=query)).json()["items"]
        return "".join(item["body"] for item in items)

    first = (await shop.get(f"{URL}/messages", params={"key": "red", "limit": "2"})).json()
    assert await found() == "abcd"
    assert await found(key="red") == "acd"
    assert await found(**{"from": "2026-01-01T12:01:00Z", "to": "1767268980000"}) == "bc"
    assert await found(key="red", cursor=first["next"]) == "d"
    assert await found(key="green") == ""


async def test_a_range_of_a_queue_is_read(shop: httpx.AsyncClient) -> None:
    """The response has the next offset and the queue bounds. No group is affected."""
    await publish(shop, *"abcde")
    url = f"{URL}/queues/local:0/messages"

    middle = (await shop.get(f"{url}?offset=1&max=2")).json()
    end = (await shop.get(f"{url}?offset=5")).json()

    assert [message["body"] for message in middle["messages"]] == ["b", "c"]
    assert (middle["next"], middle["min"], middle["max"]) == (3, 0, 5)
    assert (end["messages"], end["next"]) == ([], 5)
    assert (await lag(shop))["ready"] == 5


async def test_queues_show_their_bounds_and_times(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """They are sorted by number. An empty queue has no times."""
    await put(api, "topics/orders", queues=12)
    (stored,) = await publish(api, "a", key="k")

    items = (await api.get(f"{URL}/queues")).json()["items"]

    assert [item["queue"] for item in items] == [f"local:{number}" for number in range(12)]
    by_queue = {item["queue"]: item for item in items}
    full = by_queue.pop(stored["queue"])
    assert (full["min"], full["max"], full["firstStoredAt"]) == (0, 1, stored["storedAt"])
    assert {(queue["max"], queue["lastStoredAt"]) for queue in by_queue.values()} == {(0, None)}


async def test_queues_return_the_offset_of_an_instant(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """A reader that starts by time needs one request. Without a newer message the offset is the end."""
    await put(api, "topics/orders", queues=2)
    at = []
    for _ in range(3):
        (stored,) = await publish(api, "a", key="k")
        at.append(stored["storedAt"])
        clock.advance(1)

    async def offsets(instant: str) -> dict[str, int]:
        items = (await api.get(f"{URL}/queues", params={"at": instant})).json()["items"]
        return {item["queue"]: item["offsetAt"] for item in items}

    empty = "local:1" if stored["queue"] == "local:0" else "local:0"
    assert [await offsets(at_instant) for at_instant in (*at, "2100-01-01T00:00:00Z", "0")] == [
        {stored["queue"]: offset, empty: 0} for offset in (0, 1, 2, 3, 0)
    ]
    without = (await api.get(f"{URL}/queues")).json()["items"]
    assert not [item for item in without if "offsetAt" in item]


async def test_queues_without_times_read_no_messages(shop: httpx.AsyncClient, gateway: bootstrap.Gateway) -> None:
    """Monitoring requests the bounds of a thousand queues every few seconds."""
    await publish(shop, "a")
    log: Any = gateway.dispatcher._log
    log.read = None

    (item,) = (await shop.get(f"{URL}/queues?times=false")).json()["items"]

    assert item == {
        "queue": "local:0",
        "open": True,
        "min": 0,
        "max": 1,
        "firstStoredAt": None,
        "lastStoredAt": None,
    }


@pytest.mark.parametrize("is_known", [True, False])
async def test_unavailable_queues_are_shown_as_closed(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway, is_known: bool
) -> None:
    """A failed broker must not hide the queues of the others."""
    await put(shop, "topics/orders", queues=3)
    await publish(shop, *"abc")
    log: Any = gateway.dispatcher._log
    bounds, offsets_at, read = log.bounds, log.offsets_at, log.read

    async def heads_while_down(topic: str, since: int = 0) -> TopicBounds:
        found = await bounds(topic, since)
        # The last one was never seen while it was up.
        known = {queue: head for queue, head in found.queues.items() if queue != "local:2"}
        return TopicBounds(found.version, known, frozenset({"local:1", "local:2"} if is_known else {"local:2"}))

    async def offsets_while_down(topic: str, at: datetime) -> dict[str, int]:
        found = await offsets_at(topic, at)
        return {queue: offset for queue, offset in found.items() if queue == "local:0"}

    async def read_while_down(topic: str, queue: str, *wish: Any) -> Any:
        if queue != "local:0":
            raise QueueUnavailable("its broker is down")
        return await read(topic, queue, *wish)

    log.bounds, log.offsets_at, log.read = heads_while_down, offsets_while_down, read_while_down
    response = await shop.get(f"{URL}/queues?at=0")

    items = response.json()["items"]
    assert [(item["queue"], item["open"], item["min"], item["max"], item["offsetAt"]) for item in items] == [
        ("local:0", True, 0, 1, 0),
        ("local:1", False, 0, 1, None),
        ("local:2", False, None, None, None),
    ]
    assert [item["firstStoredAt"] is None for item in items] == [False, True, True]


async def test_pages_of_queues_of_several_brokers_are_complete(
    shop: httpx.AsyncClient, gateway: bootstrap.Gateway
) -> None:
    """Brokers use the same numbers, so a page may end between two queues of one number."""
    log: Any = gateway.dispatcher._log
    names = [f"{broker}:{number}" for number in (0, 1, 10) for broker in ("a", "b")]
    closed = TopicBounds(1, {}, frozenset(names))

    async def bounds(topic: str, since: int = 0) -> TopicBounds:
        return closed

    log.bounds = bounds
    found, cursor = [], None
    while cursor != "":
        query = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
        response = (await shop.get(f"{URL}/queues", params=query)).json()
        found += [item["queue"] for item in response["items"]]
        cursor = response["next"] or ""

    assert found == names


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/topics/nowhere/messages", 404, "topic_not_found"),
        ("/v1/topics/nowhere/messages/x", 404, "topic_not_found"),
        ("/v1/topics/nowhere/queues", 404, "topic_not_found"),
        (f"{URL}/queues/local:9/messages", 404, "queue_not_found"),
        (f"{URL}/queues/x/messages", 404, "queue_not_found"),
        (f"{URL}/queues/local:0/messages?offset=-1", 400, "invalid_value"),
        (f"{URL}/queues/local:0/messages?offset=x", 400, "invalid_value"),
        (f"{URL}/queues/local:0/messages?offset=99999999999999999999", 400, "invalid_value"),
        (f"{URL}/queues/local:0/messages?max=0", 400, "invalid_value"),
        (f"{URL}/queues/local:0/messages?max=1001", 400, "invalid_value"),
        (f"{URL}/queues/local:0/messages?max=1&max=2", 400, "invalid_value"),
        (f"{URL}/queues?at=noon", 400, "invalid_value"),
        (f"{URL}/queues?times=perhaps", 400, "invalid_value"),
        (f"{URL}/queues?limit=0", 400, "invalid_value"),
        (f"{URL}/messages?from=noon", 400, "invalid_value"),
        (f"{URL}/messages?to=-1", 400, "invalid_value"),
        (f"{URL}/messages?limit=0", 400, "invalid_value"),
        (f"{URL}/messages?cursor=x", 400, "invalid_value"),
        (f"{URL}/messages?cursor={'9' * 19}", 400, "invalid_value"),
        (f"{URL}/messages?colour=x", 400, "unknown_field"),
        (f"{URL}/messages?key=%FF", 400, "invalid_value"),
    ],
)
async def test_an_invalid_read_is_refused(shop: httpx.AsyncClient, path: str, status: int, code: str) -> None:
    """The response is 400 with the member, or 404 for a missing entry."""
    refused(await shop.get(path), status, code)


async def test_a_read_at_the_maximum_offset_is_empty(shop: httpx.AsyncClient) -> None:
    """The end of the number range must not overflow into another queue."""
    await put(shop, "topics/orders", queues=4)
    await publish(shop, *"abcd")

    response = await shop.get(f"{URL}/queues/local:0/messages?offset={(1 << 40) - 1}&max=1000")

    assert response.json()["messages"] == []
