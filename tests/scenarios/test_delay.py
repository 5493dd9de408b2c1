"""Delayed messages: the rules of semantics.md.

Most tests move a manual clock and run the timer dispatcher themselves, as its loop would do at that instant.
"""

import asyncio
import random
import time
from datetime import timedelta
from typing import Any

import httpx
import pytest
from message_calls import bodies, publish, put, refused, send, shop, take, until

from mqgate import bootstrap
from mqgate.core.errors import StorageFull
from mqgate.core.times import parse_instant
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.settings import Settings
from mqgate.testing.clock import ManualClock

DAY = timedelta(days=1)


@pytest.fixture
async def dispatcher(gateway: bootstrap.Gateway) -> TimerDispatcher:
    """Return a dispatcher that runs only when the test calls it."""
    await gateway.dispatcher.stop()
    return gateway.dispatcher


async def scheduled(api: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    """Return all scheduled messages, read page by page."""
    items: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        response = await api.get("/v1/scheduled", params={**query, **cursor})
        assert response.status_code == 200, response.text
        page = response.json()
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = {"cursor": page["next"]}


async def publish_later(api: httpx.AsyncClient, body: str = "later", **envelope: Any) -> dict[str, Any]:
    """Schedule a message and return the result."""
    response = await send(api, body=body, **envelope)
    assert response.status_code == 202, response.text
    return dict(response.json())


async def test_a_delayed_message_is_delivered_when_it_is_due_and_not_earlier(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock, engine: str
) -> None:
    """Invariant 21, to the millisecond."""
    await shop(api)
    response = await publish_later(api, delay="10s")
    clock.advance(9.999)
    early = await dispatcher.run_once(), await take(api)
    clock.advance(0.001)

    moved = await dispatcher.run_once()
    messages = await take(api)

    assert response == {"id": response["id"], "topic": "orders", "deliverAt": "2026-01-01T12:00:10.000Z"}
    assert early == (0, [])
    assert moved == 1
    assert [(message["id"], message["body"]) for message in messages] == [(response["id"], "later")]
    # A broker writes its own clock.
    assert engine != "sqlite" or messages[0]["storedAt"] == response["deliverAt"]


@pytest.mark.parametrize(
    "when",
    [
        {"delay": 60},
        {"delay": "1m"},
        {"delay": "60000ms"},
        {"deliverAt": "2026-01-01T12:01:00Z"},
        {"deliverAt": "2026-01-01T13:01:00+01:00"},
        {"deliverAt": 1767268860000},
    ],
    ids=str,
)
async def test_a_due_time_is_a_delay_or_an_instant(api: httpx.AsyncClient, when: dict[str, Any]) -> None:
    """Every form that api.md names is accepted."""
    await shop(api)

    assert (await publish_later(api, **when))["deliverAt"] == "2026-01-01T12:01:00.000Z"


async def test_headers_delay_a_raw_body(api: httpx.AsyncClient) -> None:
    """A shell script needs no JSON to schedule a message."""
    await shop(api)
    path = "/v1/topics/orders/messages"

    by_delay = await api.post(path, content=b"hello", headers={"Mqgate-Delay": "90"})
    by_instant = await api.post(path, content=b"hello", headers={"Mqgate-Deliver-At": "2026-01-01T12:01:30Z"})

    assert by_delay.status_code == by_instant.status_code == 202
    assert by_delay.json()["deliverAt"] == by_instant.json()["deliverAt"] == "2026-01-01T12:01:30.000Z"


@pytest.mark.parametrize(
    "when",
    [{"delay": 0}, {"deliverAt": "2026-01-01T12:00:00Z"}, {"deliverAt": "1999-01-01T00:00:00Z"}, {"deliverAt": 0}],
)
async def test_a_due_time_in_the_past_means_now(api: httpx.AsyncClient, when: dict[str, Any]) -> None:
    """The message is stored at once, and the response is that of any publish."""
    await shop(api)

    response = await send(api, body="now", **when)

    assert response.status_code == 201
    assert bodies(await take(api)) == ["now"]
    assert await scheduled(api) == []


@pytest.mark.parametrize(
    "when",
    [
        {"delay": "731d"},
        {"delay": 63_072_000.001},
        {"deliverAt": "2028-01-02T12:00:00Z"},
        {"deliverAt": 253_402_300_799_999},
        {"delay": -1},
        {"delay": "soon"},
        {"delay": "1w"},
        {"deliverAt": "tomorrow"},
        {"deliverAt": "2026-01-01T12:00:00"},
        {"deliverAt": -1},
        {"delay": 1, "deliverAt": "2026-01-02T12:00:00Z"},
        {"delay": True},
    ],
    ids=str,
)
async def test_an_invalid_due_time_is_refused_and_not_clamped(api: httpx.AsyncClient, when: dict[str, Any]) -> None:
    """The response is 400 with a stable code, and nothing is stored or scheduled."""
    await shop(api)

    response = await send(api, **when)

    refused(response, 400, "invalid_value")
    assert await scheduled(api) == []
    assert await take(api) == []


async def test_a_two_year_timer_can_be_listed_retimed_and_cancelled(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """Two years are the maximum, to the second. A cancelled message is never delivered."""
    await shop(api)
    response = await publish_later(api, deliverAt="2028-01-01T12:00:00Z", key="k", tag="t", properties={"a": "b"})
    path = f"/v1/scheduled/{response['id']}"
    listed = await scheduled(api)
    retimed = await api.patch(path, json={"deliverAt": "2027-12-31T12:00:00Z"})
    beyond = await api.patch(path, json={"delay": "731d"})
    shown = (await api.get(path)).json()

    cancelled = await api.delete(path)
    clock.advance(731 * DAY)

    assert [message["id"] for message in listed] == [response["id"]]
    assert (retimed.status_code, retimed.json()["deliverAt"]) == (200, "2027-12-31T12:00:00.000Z")
    refused(beyond, 400, "invalid_value")
    assert (shown["body"], shown["key"], shown["tag"], shown["properties"], shown["state"]) == (
        "later",
        "k",
        "t",
        {"a": "b"},
        "scheduled",
    )
    assert cancelled.json() == {"id": response["id"], "outcome": "cancelled"}
    assert await dispatcher.run_once() == 0
    assert await take(api) == []


async def test_a_two_year_timer_is_delivered_after_two_years(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """The message is unchanged."""
    await shop(api)
    response = await publish_later(api, delay="730d", key="k", tag="t", properties={"a": "\u00fc"})
    clock.advance(730 * DAY)

    await dispatcher.run_once()
    (message,) = await take(api)

    assert {name: message[name] for name in ("id", "body", "key", "tag", "properties")} == {
        "id": response["id"],
        "body": "later",
        "key": "k",
        "tag": "t",
        "properties": {"a": "\u00fc"},
    }


async def test_scheduled_messages_are_listed_by_due_time_with_filters(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """Lists are filtered by topic and time. The pages contain every message once."""
    await shop(api)
    await put(api, "topics/others", queues=1)
    for minute in (4, 1, 3, 2, 5):
        await publish_later(api, str(minute), delay=60 * minute)
    await publish_later(api, "theirs", delay=90, topic="others")
    due = {message["id"]: message["deliverAt"] for message in await scheduled(api, limit=2)}

    everything = list(due.values())
    ours = await scheduled(api, topic="orders", limit=2)
    some = await scheduled(api, **{"from": "2026-01-01T12:02:00Z", "to": "2026-01-01T12:04:00Z"})

    assert everything == sorted(everything)
    assert len(everything) == 6
    assert len(ours) == 5
    assert [message["deliverAt"] for message in some] == ["2026-01-01T12:02:00.000Z", "2026-01-01T12:03:00.000Z"]


async def test_a_repeated_cancel_returns_the_same_response(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """For at least 10 minutes. A cancelled message cannot be rescheduled."""
    await shop(api)
    path = f"/v1/scheduled/{(await publish_later(api, delay='1h'))['id']}"

    first = await api.delete(path)
    clock.advance(600)
    again = await api.delete(path)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    refused(await api.patch(path, json={"delay": 5}), 409, "already_cancelled")
    assert (await api.get(path)).json()["state"] == "cancelled"


async def test_a_delivered_message_can_be_neither_cancelled_nor_retimed(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """The response is 409 `already_delivered`, and the message exists once."""
    await shop(api)
    path = f"/v1/scheduled/{(await publish_later(api, delay='1s'))['id']}"
    clock.advance(1)
    await dispatcher.run_once()

    refused(await api.delete(path), 409, "already_delivered")
    refused(await api.patch(path, json={"delay": 5}), 409, "already_delivered")
    assert (await api.get(path)).json()["state"] == "delivered"
    assert bodies(await take(api)) == ["later"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
async def test_an_unknown_id_is_not_found(api: httpx.AsyncClient, method: str) -> None:
    """The response is 404 with a stable code, also for a message that was never scheduled."""
    await shop(api)
    (stored,) = await publish(api, "now")

    for message_id in ("nobody", stored["id"]):
        response = await api.request(
            method, f"/v1/scheduled/{message_id}", json={"delay": 5} if method == "PATCH" else None
        )
        refused(response, 404, "scheduled_not_found")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_value"),
        ({"delay": 1, "deliverAt": 5}, "invalid_value"),
        ({"delay": -1}, "invalid_value"),
        ({"delay": "800d"}, "invalid_value"),
        ({"when": 1}, "unknown_field"),
    ],
)
async def test_an_invalid_retime_is_refused_and_changes_nothing(
    api: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    """The message keeps its due time."""
    await shop(api)
    response = await publish_later(api, delay="1h")

    refused(await api.patch(f"/v1/scheduled/{response['id']}", json=body), 400, code)

    assert [message["deliverAt"] for message in await scheduled(api)] == [response["deliverAt"]]


@pytest.mark.parametrize("query", [{"cursor": "x"}, {"limit": "0"}, {"limit": "1001"}, {"from": "x"}, {"sort": "a"}])
async def test_an_invalid_list_query_is_refused(api: httpx.AsyncClient, query: dict[str, str]) -> None:
    """Bad input must never cause a 500."""
    response = await api.get("/v1/scheduled", params=query)

    assert response.status_code == 400


async def test_a_retime_into_the_past_means_now(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """The rule is that of publish."""
    await shop(api)
    response = await publish_later(api, delay="1h")

    await api.patch(f"/v1/scheduled/{response['id']}", json={"deliverAt": "2020-01-01T00:00:00Z"})
    await dispatcher.run_once()

    assert bodies(await take(api)) == ["later"]


async def test_each_item_of_a_batch_is_stored_scheduled_or_refused_alone(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """One invalid item does not fail the others."""
    await shop(api)
    messages = [
        {"body": "now"},
        {"body": "soon", "delay": "5s"},
        {"body": "never", "delay": "800d"},
        {"body": "past", "deliverAt": 5},
        {"body": "later", "deliverAt": "2026-01-01T12:00:10Z", "key": "k"},
    ]

    response = await api.post("/v1/topics/orders/messages", json={"messages": messages})
    at_once = bodies(await take(api))
    clock.advance(5)
    await dispatcher.run_once()
    after_five = bodies(await take(api))
    clock.advance(5)
    await dispatcher.run_once()

    assert response.status_code == 207
    assert [result["status"] for result in response.json()["results"]] == [201, 202, 400, 201, 202]
    assert response.json()["results"][2]["error"]["index"] == 2
    assert (at_once, after_five, bodies(await take(api))) == (["now", "past"], ["soon"], ["later"])


async def test_a_key_selects_the_same_queue_with_and_without_a_delay(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """A delay must not change the queue of a key."""
    await shop(api, queues=8)
    for number in range(10):
        await publish(api, "now", key=f"k{number}")
        await publish_later(api, key=f"k{number}", delay=1)
    clock.advance(1)
    await dispatcher.run_once()

    queues: dict[str, set[str]] = {}
    for message in await take(api, max=100):
        queues.setdefault(message["key"], set()).add(message["queue"])

    assert len(queues) == 10
    assert all(len(found) == 1 for found in queues.values())


async def test_of_a_concurrent_cancel_and_dispatch_exactly_one_succeeds(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """A hundred messages are cancelled during their dispatch. Each response reports which operation succeeded."""
    await shop(api)
    ids = [(await publish_later(api, str(number), delay=1))["id"] for number in range(100)]
    random.Random(1).shuffle(ids)
    clock.advance(1)

    responses, _ = await asyncio.gather(
        asyncio.gather(*(api.delete(f"/v1/scheduled/{message_id}") for message_id in ids)), dispatcher.run_once()
    )
    await dispatcher.run_once()

    cancelled = {message_id for message_id, response in zip(ids, responses, strict=True) if response.status_code == 200}
    refused_ = {message_id for message_id, response in zip(ids, responses, strict=True) if response.status_code == 409}
    delivered = {message["id"] for message in await take(api, max=1000)}
    assert cancelled | refused_ == set(ids)
    assert delivered == refused_


async def test_messages_due_during_a_stop_are_delivered_once_after_the_restart(
    settings: Settings, clock: ManualClock
) -> None:
    """They are delivered at the start, in the order of their due times."""
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")
        await shop(api)
        for number in (3, 1, 2):
            await publish_later(api, str(number), delay=60 * number)
    clock.advance(3600)

    async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
        api = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")
        messages = await take(api, wait=2)

        assert bodies(messages) == ["1", "2", "3"]
        assert await gateway.dispatcher.run_once() == 0


async def test_timers_survive_a_full_disk_without_loss_or_duplicates(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full for the record of the failure too. The dispatcher continues when there is space."""
    await shop(live_api)
    dispatcher: Any = live.dispatcher
    append, release, finish = dispatcher._log.append, dispatcher._timers.release, dispatcher._timers.finish
    failing = {"append": 2, "release": 1, "finish": 2}

    def full(name: str, real: Any) -> Any:
        async def call(*arguments: Any) -> Any:
            if failing[name] and (name != "finish" or not failing["append"]):
                failing[name] -= 1
                raise StorageFull("full")
            return await real(*arguments)

        return call

    monkeypatch.setattr(dispatcher._log, "append", full("append", append))
    monkeypatch.setattr(dispatcher._timers, "release", full("release", release))
    monkeypatch.setattr(dispatcher._timers, "finish", full("finish", finish))
    for number in range(5):
        await publish_later(live_api, str(number), delay=0.05)

    # Whether something had to be released depends on how many were due at once.
    await until(lambda: not failing["append"] and not failing["finish"])
    found = bodies(await take(live_api, wait=10, max=5))
    while len(found) < 5:
        found += bodies(await take(live_api, wait=10))

    assert sorted(found) == ["0", "1", "2", "3", "4"]
    assert await take(live_api, wait=1) == []
    assert await scheduled(live_api) == []


async def test_an_earlier_timer_wakes_the_dispatcher(live_api: httpx.AsyncClient) -> None:
    """The loop sleeps until the next due time. Scheduling and rescheduling must wake it for an earlier one."""
    await shop(live_api)
    far = await publish_later(live_api, "far", delay="1h")
    await publish_later(live_api, "near", delay=0.2)
    began = time.monotonic()
    first = await take(live_api, wait=5)
    near = time.monotonic() - began
    await live_api.patch(f"/v1/scheduled/{far['id']}", json={"delay": 0.2})
    began = time.monotonic()

    second = await take(live_api, wait=5)

    assert (bodies(first), bodies(second)) == (["near"], ["far"])
    assert 0.15 < near < 1.2
    assert 0.15 < time.monotonic() - began < 1.2


async def test_many_timers_are_at_most_a_second_late_and_none_is_early(live_api: httpx.AsyncClient) -> None:
    """Two thousand timers are due within a second of the real clock."""
    await shop(live_api, queues=4)
    dice = random.Random(2)
    due: dict[str, str] = {}
    for _ in range(4):
        messages = [{"body": "x", "delay": f"{1000 + dice.randrange(1000)}ms"} for _ in range(500)]
        response = await live_api.post("/v1/topics/orders/messages", json={"messages": messages})
        due |= {result["id"]: result["deliverAt"] for result in response.json()["results"]}

    stored: dict[str, str] = {}
    while len(stored) < 2000:
        messages = await take(live_api, max=1000, wait=5)
        assert messages
        assert not {message["id"] for message in messages} & stored.keys()
        stored |= {message["id"]: message["storedAt"] for message in messages}

    assert all(stored[message_id] >= due[message_id] for message_id in due)
    lateness = sorted(_ms(stored[message_id]) - _ms(due[message_id]) for message_id in due)
    assert lateness[-1] <= 1_000


def _ms(text: str) -> float:
    return parse_instant(text, "").timestamp() * 1000


async def test_a_timer_of_a_deleted_topic_does_not_delay_others(
    api: httpx.AsyncClient, dispatcher: TimerDispatcher, clock: ManualClock
) -> None:
    """It is dropped, and the timers of other topics are delivered."""
    await shop(api)
    await put(api, "topics/others", queues=1)
    await publish_later(api, "theirs", delay=1, topic="others")
    await publish_later(api, "ours", delay=1)
    await api.delete("/v1/topics/others")
    clock.advance(1)

    await dispatcher.run_once()

    assert bodies(await take(api)) == ["ours"]
    assert await scheduled(api) == []


async def test_the_dispatcher_stops_while_it_is_being_woken(settings: Settings, clock: ManualClock) -> None:
    """A cancellation that coincides with the wake-up must not be lost."""
    for _ in range(20):
        async with bootstrap.gateway(settings, wall_ms=clock) as gateway:
            api = httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")
            await put(api, "topics/orders", queues=1)
            await publish_later(api, delay="1h")

            async with asyncio.timeout(5):
                await gateway.dispatcher.stop()
