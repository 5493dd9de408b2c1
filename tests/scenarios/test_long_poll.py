"""Parked receives: woken by everything that makes a message ready, and by nothing else (semantics.md).

Real time, short waits. "At once" in a test means much less than the wait that it would otherwise take.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from message_calls import (
    Call,
    ack,
    bodies,
    counts,
    metric,
    operate,
    outcome,
    parked,
    publish,
    put,
    receive,
    settle,
    shop,
    take,
    two_leased,
    until,
)

from mqgate import bootstrap
from mqgate.adapters.redis import lease_store
from mqgate.adapters.sqlite import message_leases
from mqgate.settings import HttpSettings, Settings
from mqgate.testing.clock import ManualClock

# Much less than any wait here, and much more than a busy machine needs for a wake-up.
AT_ONCE = 5.0
LONG = 20


async def timed(answer: Awaitable[Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return await answer, time.monotonic() - began


async def woken_by(
    live: bootstrap.Gateway, event: Callable[[], Awaitable[Any]], count: int = 1, **wish: Any
) -> list[str]:
    """Park a receive, run an action, and return what arrives at once."""
    calls = [Call(live, **{"wait": LONG, **wish}) for _ in range(count)]
    await parked(live, count)
    await event()
    async with asyncio.timeout(AT_ONCE):
        found = [message for call in calls for message in await call.messages()]
    return sorted(bodies(found))


async def test_a_receive_without_wait_never_parks(live_api: httpx.AsyncClient) -> None:
    """A wait of 0, or none, returns at once and is not counted as a long poll."""
    await shop(live_api)

    answer, seconds = await timed(receive(live_api, wait=0))

    assert (answer["messages"], answer["state"]) == ([], "ok")
    assert seconds < AT_ONCE
    assert await metric(live_api, 'mqgate_long_polls_total{outcome="timed_out"}') == 0


async def test_a_wait_below_a_second_counts_as_a_second_and_ends_in_time(live_api: httpx.AsyncClient) -> None:
    """The response arrives after at most the wait and 0.5 s."""
    await shop(live_api)

    tries = [await timed(receive(live_api, wait=0.05)) for _ in range(3)]

    assert all(answer["messages"] == [] and seconds >= 1.0 for answer, seconds in tries)
    assert min(seconds for _, seconds in tries) < 1.5  # the best of three: a machine may hold up one of them


async def test_a_ready_message_is_returned_without_parking(live_api: httpx.AsyncClient) -> None:
    """A receive always tries first without waiting."""
    await shop(live_api, queues=8)
    await publish(live_api, "a")

    messages, seconds = await timed(take(live_api, wait=LONG))

    assert bodies(messages) == ["a"]
    assert seconds < AT_ONCE
    assert await metric(live_api, 'mqgate_long_polls_total{outcome="short_poll_hit"}') == 1


@pytest.mark.parametrize("mode", ["message", "queue", "broadcast"])
async def test_an_arrival_on_any_queue_wakes_in_every_mode(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """The queue of the message does not matter."""
    await shop(live_api, queues=8, mode=mode)
    client = {"clientId": "ada"} if mode == "broadcast" else {}
    await receive(live_api, **client)

    for number in range(10):
        answer = Call(live, wait=LONG, **client)
        await parked(live, 1)
        await publish(live_api, str(number))
        async with asyncio.timeout(AT_ONCE):
            found = await answer.response()
        assert found is not None
        assert bodies(found["messages"]) == [str(number)]
        receipt = found["messages"][0]["receipt"] if mode == "message" else found["lease"]["receipt"]
        assert await outcome(live_api, "ack", receipt) == (200, "applied")


async def test_a_redelivery_that_is_due_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """This includes a nack that happens while the other receive is parked."""
    await shop(live_api)
    await publish(live_api, "a")
    (message,) = await take(live_api)

    assert await woken_by(live, lambda: settle(live_api, "nack", message, delay="200ms")) == ["a"]


async def test_an_expired_lease_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """The parked receive gets the message of a crashed worker after the lease and the backoff."""
    await shop(live_api, backoff=["100ms"])
    await publish(live_api, "a")
    await take(live_api, visibility=1)

    messages, seconds = await timed(take(live_api, wait=LONG))

    assert [(message["body"], message["delivery"]) for message in messages] == [("a", 2)]
    assert seconds < 1.1 + AT_ONCE


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_the_expiry_of_a_lease_granted_meanwhile_wakes(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """The step that grants it must set a timer, because nothing else would wake the parked receive."""
    await shop(live_api, mode=mode, backoff=[0], visibility=1)
    quick = Call(live, wait=LONG)
    await parked(live, 1)
    stays = Call(live, wait=LONG)
    await parked(live, 2)
    await publish(live_api, "a")
    assert bodies(await quick.messages()) == ["a"]

    messages, seconds = await timed(stays.messages())

    assert bodies(messages) == ["a"]
    assert seconds < 1 + AT_ONCE


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_the_expiry_of_a_lease_of_a_receive_without_wait_wakes(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """That receive takes the message between its arrival and the try of the woken receive."""
    await shop(live_api, mode=mode, backoff=[0], visibility=1, queues=1)
    await operate(live_api, "pause")
    stays = Call(live, wait=LONG)
    await parked(live, 1)
    await publish(live_api, "a")
    await until(lambda: live.long_poll.parked == 1)
    resumed, passed_by = await asyncio.gather(operate(live_api, "resume"), receive(live_api))
    responses = [passed_by] if passed_by["messages"] else []

    messages, seconds = await timed(stays.messages())

    assert resumed["paused"] is False
    assert bodies(messages) == ["a"]
    assert seconds < (1 if responses else 0) + AT_ONCE


async def test_every_due_redelivery_wakes_a_receive(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Ten messages are due at different times. Each of ten parked receives gets one when it is due."""
    await shop(live_api, backoff=[0])
    await publish(live_api, *map(str, range(10)))
    messages = await take(live_api)
    for number, message in enumerate(messages):
        # None before all of them wait, on a busy machine too.
        await settle(live_api, "nack", message, delay=f"{1_500 + 50 * number}ms")
    calls = [Call(live, wait=LONG, max=1) for _ in range(10)]
    await parked(live, 10)

    async with asyncio.timeout(2 + AT_ONCE):
        found = [message for call in calls for message in await call.messages()]

    assert sorted(bodies(found), key=int) == [str(number) for number in range(10)]


async def test_a_due_timer_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A delayed message reaches a parked receive at its due time and not before."""
    await shop(live_api)

    async def publish_and_take() -> list[dict[str, Any]]:
        await live_api.post("/v1/topics/orders/messages", json={"body": "later", "delay": "300ms"})
        return await take(live_api, wait=LONG)

    messages, seconds = await timed(publish_and_take())

    assert bodies(messages) == ["later"]
    assert 0.3 <= seconds < 0.3 + AT_ONCE


async def test_an_ack_below_the_in_flight_cap_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """At the cap a receive parks until a message is settled."""
    await shop(live_api, maxInFlight=1)
    await publish(live_api, "a", "b")
    (message,) = await take(live_api)

    assert await woken_by(live, lambda: ack(live_api, message)) == ["b"]


async def test_an_ack_that_shortens_the_span_wakes(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unsettled message blocked the queue. Its ack must also continue parked receives."""
    for store in (message_leases, lease_store):
        monkeypatch.setattr(store, "MAX_SPAN", 2)
    await shop(live_api)
    await publish(live_api, "a", "b", "c")
    first, second = await take(live_api)
    await ack(live_api, second)

    assert await woken_by(live, lambda: ack(live_api, first)) == ["c"]


async def test_an_ack_wakes_a_receive_for_the_next_message_of_the_key(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """This includes an ack that another receive carries."""
    await shop(live_api, ordered=True)
    await publish(live_api, "k1", "k2", "k3", key="k")
    (first,) = await take(live_api)

    assert await woken_by(live, lambda: ack(live_api, first)) == ["k2"]


async def test_a_dead_letter_wakes_a_receive_for_the_next_message_of_the_key(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Both a last nack and the expiry of the last lease must wake it."""
    await shop(live_api, ordered=True, maxAttempts=1)
    await publish(live_api, "k1", "k2", "k3", key="k")
    (first,) = await take(live_api)
    by_nack = await woken_by(live, lambda: settle(live_api, "nack", first), visibility=1)

    messages, seconds = await timed(take(live_api, wait=LONG))

    assert by_nack == ["k2"]
    assert bodies(messages) == ["k3"]
    assert seconds < 1 + AT_ONCE


async def test_concurrent_receives_of_an_ordered_group_all_get_a_message(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """A receive that tries while another reads the keys must be woken. Many receives, a hundred rounds."""
    await shop(live_api, ordered=True)
    for _ in range(50):
        calls = [Call(live, wait=LONG, max=1) for _ in range(4)]
        await parked(live, 4)
        await publish(live_api, *"abcd")
        async with asyncio.timeout(AT_ONCE):
            found = [message for call in calls for message in await call.messages()]
        assert sorted(bodies(found)) == list("abcd")
        await ack(live_api, *found)


async def test_a_released_queue_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Queue mode: an ack or a nack."""
    await shop(live_api, mode="queue")
    await publish(live_api, "a", "b")
    for verb, left in (("nack", ["a"]), ("ack", ["b"])):
        held = await receive(live_api, max=1)
        receipt = held["lease"]["receipt"]
        call = Call(live, wait=LONG, max=1)
        await parked(live, 1)
        await settle(live_api, verb, receipt)
        async with asyncio.timeout(AT_ONCE):
            found = await call.response()
        assert found is not None
        assert bodies(found["messages"]) == left
        await settle(live_api, "nack", found["lease"]["receipt"])


async def test_a_queue_released_by_a_receive_of_another_queue_wakes(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Carried acks release two queues and their receive takes one. The parked receive gets the other."""
    freed = await two_leased(live_api)

    async def settle_both_and_take_one() -> None:
        assert len(await take(live_api, max=1, ack=freed)) == 1

    assert len(await woken_by(live, settle_both_and_take_one, max=1)) == 1


async def test_a_receive_that_is_granted_the_queue_it_released_wakes_no_other(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """With more clients than queues every ack would otherwise cause an empty wake-up."""
    await shop(live_api, mode="queue")
    await publish(live_api, *range(20), key="one")
    receipt = (await receive(live_api, max=1))["lease"]["receipt"]
    waiting = Call(live, wait=LONG)
    await parked(live, 1)
    before = await metric(live_api, "mqgate_empty_wake_ups_total")

    for _ in range(10):
        receipt = (await receive(live_api, max=1, ack=[receipt]))["lease"]["receipt"]

    # One may be of the log: an arrival that it tells late.
    assert await metric(live_api, "mqgate_empty_wake_ups_total") <= before + 1
    await outcome(live_api, "ack", receipt)
    assert await waiting.messages()


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_resume_wakes_and_pause_applies_to_parked_receives(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """Invariant 22: a pause also applies to receives that were parked before it."""
    await shop(live_api, mode=mode)
    call = Call(live, wait=LONG)
    await parked(live, 1)
    await operate(live_api, "pause")
    await publish(live_api, "a")
    assert (await counts(live_api))[0] == 1
    late = Call(live, wait=LONG)
    await parked(live, 2)

    await operate(live_api, "resume")
    async with asyncio.timeout(AT_ONCE):
        await asyncio.wait({call.task, late.task}, return_when=asyncio.FIRST_COMPLETED)

    (done,) = [parked_call for parked_call in (call, late) if parked_call.task.done()]
    assert bodies(await done.messages()) == ["a"]
    for parked_call in (call, late):
        parked_call.disconnect()
    await asyncio.gather(call.task, late.task)


async def test_a_seek_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """The repeated messages are ready at once."""
    await shop(live_api)
    await publish(live_api, "a")
    await ack(live_api, *await take(live_api))

    assert await woken_by(live, lambda: operate(live_api, "seek", to="earliest")) == ["a"]


async def test_a_redrive_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A redriven message is an arrival for its group."""
    await shop(live_api, maxAttempts=1)
    await publish(live_api, "a")
    await settle(live_api, "nack", (await take(live_api))[0])

    assert await woken_by(live, lambda: operate(live_api, "dead-letters/redrive", all=True)) == ["a"]


async def test_a_changed_setting_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A raised cap or a removed rate limit applies to parked receives."""
    await shop(live_api, maxInFlight=1)
    await publish(live_api, "a", "b")
    await take(live_api)

    assert await woken_by(live, lambda: put(live_api, "groups/workers", maxInFlight=5)) == ["b"]


async def test_a_new_token_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A rate-limited receive parks until a token is available, and does not poll meanwhile."""
    await shop(live_api, rateLimit={"rate": 2, "burst": 1})
    await publish(live_api, "a", "b")
    began = time.monotonic()
    await settle(live_api, "nack", (await take(live_api))[0], delay=0)
    before = await metric(live_api, "mqgate_empty_wake_ups_total")

    messages = await take(live_api, wait=LONG)

    assert len(messages) == 1
    assert 0.5 <= time.monotonic() - began < 0.5 + AT_ONCE
    assert await metric(live_api, "mqgate_empty_wake_ups_total") - before <= 3


async def test_at_the_cap_no_receive_polls_in_a_loop(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A failed message is ready but the cap forbids it, so the receive sleeps until a message is settled."""
    await shop(live_api, maxInFlight=1, backoff=[0], visibility=2)
    await publish(live_api, "a", "b")
    await settle(live_api, "nack", (await take(live_api))[0], delay=0.05)
    await take(live_api)
    before = await metric(live_api, "mqgate_empty_wake_ups_total")

    answer = await receive(live_api, wait=1)

    assert (answer["messages"], answer["state"]) == ([], "in_flight_cap")
    assert await metric(live_api, "mqgate_empty_wake_ups_total") - before <= 3


async def test_deleting_a_group_ends_its_parked_receives(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """The response is 404 at once, and no lease state is created again."""
    await shop(live_api)
    waiting = asyncio.ensure_future(live_api.post("/v1/groups/workers/receive", json={"wait": LONG}))
    await parked(live, 1)

    await live_api.delete("/v1/groups/workers")
    async with asyncio.timeout(AT_ONCE):
        answer = await waiting

    assert answer.status_code == 404
    assert answer.json()["code"] == "group_not_found"


async def test_a_message_that_does_not_match_never_ends_a_long_poll(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """After twenty messages of another tag, one response contains the first match."""
    await shop(live_api, filter={"tags": ["red"]})

    async def events() -> None:
        for number in range(20):
            await publish(live_api, str(number), tag="green")
        assert live.long_poll.parked == 1
        await publish(live_api, "match", tag="red")

    assert await woken_by(live, events) == ["match"]


async def test_one_publish_wakes_exactly_one_of_many_receives(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """No thundering herd: one message, one response, no empty wake-up."""
    await shop(live_api, queues=4)
    # A log that has just been met may wake once too often.
    await publish(live_api, "first")
    await ack(live_api, (await take(live_api))[0])
    calls = [Call(live, wait=LONG) for _ in range(200)]
    await parked(live, 200)
    before = await metric(live_api, "mqgate_empty_wake_ups_total")

    await publish(live_api, "a")
    await until(lambda: live.long_poll.parked == 199)
    woken = [call for call in calls if call.task.done()]

    assert len(woken) == 1
    assert bodies(await woken[0].messages()) == ["a"]
    assert await metric(live_api, "mqgate_empty_wake_ups_total") == before
    live.long_poll.stop()
    await asyncio.gather(*(call.task for call in calls))


async def test_parked_receives_are_served_in_order_of_arrival(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """A receive must not wait longer because others came later."""
    await shop(live_api, queues=4)
    calls = []
    for number in range(10):
        calls.append(Call(live, wait=LONG))
        await parked(live, number + 1)

    served = []
    for number in range(10):
        await publish(live_api, str(number))
        await parked(live, 9 - number)
        served.append(next(index for index, call in enumerate(calls) if call.task.done() and index not in served))

    assert served == list(range(10))


async def test_an_arrival_wakes_as_many_receives_as_it_can_serve(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Ten messages in one batch serve ten receives of one message."""
    await shop(live_api, queues=3)

    assert await woken_by(live, lambda: publish(live_api, *"abcdefghij"), count=10, max=1) == list("abcdefghij")


async def test_a_message_that_exceeded_the_response_size_wakes_the_next_receive(settings: Settings) -> None:
    """Of two large messages one fits into a response. The next parked receive gets the other at once."""
    own = replace(settings, http=HttpSettings(max_answer_bytes=1_500))
    async with bootstrap.gateway(own) as gateway:
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            await shop(api)
            large = ["a" * 1_000, "b" * 1_000]

            assert await woken_by(gateway, lambda: publish(api, *large), count=2) == large


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_the_messages_of_a_disconnected_client_go_to_the_next_receive(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """Whether it was parked or already served: uncounted, and within a second."""
    await shop(live_api, mode=mode)
    dice = random.Random(5)
    for number in range(50):
        gone = Call(live, wait=LONG)
        await parked(live, 1)
        stays = Call(live, wait=LONG)
        await parked(live, 2)
        arrival = asyncio.ensure_future(publish(live_api, str(number)))
        for _ in range(dice.randrange(60)):
            await asyncio.sleep(0)
        gone.disconnect()
        await arrival
        answer = await gone.response()
        if answer is None:
            async with asyncio.timeout(AT_ONCE):
                answer = await stays.response()
        else:
            stays.disconnect()
            assert await stays.response() is None
        assert answer is not None
        (message,) = answer["messages"]
        assert (message["body"], message["delivery"]) == (str(number), 1)
        receipt = answer["lease"]["receipt"] if mode == "queue" else message["receipt"]
        assert await outcome(live_api, "ack", receipt) == (200, "applied")
    assert await counts(live_api) == (0, 0, 0)


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_messages_released_by_a_receive_without_wait_wake(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """Receives without wait disconnect. A receive that was woken without effect is woken again."""
    await shop(live_api, mode=mode)
    is_over = False

    async def pass_by() -> None:
        while not is_over:
            await Call(live, is_disconnected=True).response()

    async with asyncio.TaskGroup() as passers_by:
        for _ in range(3):
            passers_by.create_task(pass_by())
        for number in range(60):
            stays = Call(live, wait=LONG)
            await parked(live, 1)
            await publish(live_api, str(number))
            async with asyncio.timeout(AT_ONCE):
                answer = await stays.response()
            assert answer is not None
            assert [(message["body"], message["delivery"]) for message in answer["messages"]] == [(str(number), 1)]
            receipt = answer["lease"]["receipt"] if mode == "queue" else answer["messages"][0]["receipt"]
            assert await outcome(live_api, "ack", receipt) == (200, "applied")
        is_over = True


async def test_a_receive_that_parks_while_another_reads_keys_is_woken(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """The other receive had no waiters when it began. What it leaves must still reach the parked one."""
    await shop(live_api, ordered=True)
    dice = random.Random(7)
    for _ in range(150):
        await publish(live_api, "a", "b")
        looks = Call(live, max=1)
        for _ in range(dice.randrange(80)):
            await asyncio.sleep(0)
        waits = Call(live, wait=LONG, max=1)
        async with asyncio.timeout(AT_ONCE):
            found = [*await looks.messages(), *await waits.messages()]
        assert sorted(bodies(found)) == ["a", "b"]
        await ack(live_api, *found)


async def test_long_poll_metrics_add_up(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Every receive is counted once, as hit, woken or timed out."""
    await shop(live_api)
    await publish(live_api, "hit")
    hit = await take(live_api, wait=1)
    woken = Call(live, wait=LONG)
    await parked(live, 1)
    await publish(live_api, "woken")
    await woken.task
    timed_out = await take(live_api, wait=1)

    found = {
        word: await metric(live_api, f'mqgate_long_polls_total{{outcome="{word}"}}')
        for word in ("short_poll_hit", "woken", "timed_out")
    }

    assert (bodies(hit), timed_out) == (["hit"], [])
    assert found == {"short_poll_hit": 1, "woken": 1, "timed_out": 1}
    assert await metric(live_api, "mqgate_wake_up_seconds_count") == 1
    assert await metric(live_api, "mqgate_parked_requests") == 0
    assert await metric(live_api, "mqgate_empty_wake_ups_total") == 0


async def test_a_graceful_stop_ends_parked_receives(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """They return at once without messages, and no further receive parks."""
    await shop(live_api)
    calls = [Call(live, wait=LONG) for _ in range(20)]
    await parked(live, 20)

    live.long_poll.stop()
    async with asyncio.timeout(AT_ONCE):
        responses = [await call.messages() for call in calls]
        late = await take(live_api, wait=LONG)

    assert responses == [[]] * 20
    assert late == []


async def test_a_woken_receive_that_finds_nothing_parks_again(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Another receive was faster. It waits for the remaining time, and sends one response."""
    await shop(live_api)
    call = Call(live, wait=2)
    began = time.monotonic()
    await parked(live, 1)
    for number in range(50):
        _, messages = await asyncio.gather(publish(live_api, str(number)), take(live_api))
        if messages or call.task.done():
            break

    found = await call.messages()

    assert len(found) <= 1
    assert time.monotonic() - began < 2.5


async def test_parked_receives_beyond_the_limit_are_refused(settings: Settings) -> None:
    """The response is 503 with Retry-After. Parked receives are still served."""
    async with bootstrap.gateway(replace(settings, http=HttpSettings(max_parked=2))) as gateway:
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            await shop(api)
            calls = [Call(gateway, wait=LONG) for _ in range(2)]
            await parked(gateway, 2)

            answer = await api.post("/v1/groups/workers/receive", json={"wait": LONG})
            await publish(api, "a", "b")

            assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
            assert "retry-after" in answer.headers
            assert sum([len(await call.messages()) for call in calls[:1]]) >= 1
            for call in calls:
                call.disconnect()
            await asyncio.gather(*(call.task for call in calls))


@pytest.mark.slow
async def test_a_parked_receive_gets_every_message_at_once(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Eight queues and one client: 1,000 messages, one at a time, each on a random queue."""
    await shop(live_api, queues=8)
    dice = random.Random(6)
    late = []
    acks: list[str] = []

    for number in range(1_000):
        call = Call(live, wait=LONG, ack=acks)
        await parked(live, 1)
        await publish(live_api, str(number), key=str(dice.randrange(1_000_000)))
        messages, seconds = await timed(call.messages())
        assert bodies(messages) == [str(number)]
        acks = [message["receipt"] for message in messages]
        late.append(seconds)

    assert max(late) < AT_ONCE
    assert await metric(live_api, 'mqgate_long_polls_total{outcome="timed_out"}') == 0


async def test_a_parked_broadcast_client_is_not_idle(live: bootstrap.Gateway, live_api: httpx.AsyncClient) -> None:
    """Its state is kept while it is parked, although its clientTtl is shorter."""
    await put(live_api, "topics/orders", queues=1)
    await put(live_api, "groups/all", topic="orders", mode="broadcast", clientTtl=1)
    first = await receive(live_api, "all", clientId="ada")
    waiting = Call(live, group="all", clientId="ada", wait=LONG)
    await parked(live, 1)

    await asyncio.sleep(2.5)
    await publish(live_api, "late")
    async with asyncio.timeout(AT_ONCE):
        found = await waiting.messages()

    assert first["registered"] is True
    assert bodies(found) == ["late"]


@pytest.mark.parametrize("when", ["waiting", "served"])
async def test_a_notice_for_a_disconnected_client_is_in_its_next_response(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, when: str
) -> None:
    """A client whose first connection broke must learn that it was registered at a new position."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/all", topic="orders", mode="broadcast", start="earliest")
    if when == "served":
        await publish(api, "seen")
    gone = Call(gateway, group="all", clientId="ada", wait=LONG, is_disconnected=when == "served")
    if when == "waiting":
        await parked(gateway, 1)
        gone.disconnect()
    assert await gone.response() is None
    if when == "waiting":
        await publish(api, "seen")

    first, second = [await receive(api, "all", clientId="ada") for _ in range(2)]

    assert (bodies(first["messages"]), first["registered"]) == (["seen"], True)
    assert "registered" not in second


async def test_a_notice_found_while_parked_is_in_the_response(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """A client that is registered again while it is parked must learn of it."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/all", topic="orders", mode="broadcast", clientTtl=3600)
    await receive(api, "all", clientId="ada")
    waiting = Call(gateway, group="all", clientId="ada", wait=LONG)
    await parked(gateway, 1)
    clock.advance(3601)

    await publish(api, "missed")
    async with asyncio.timeout(AT_ONCE):
        while not await metric(api, "mqgate_empty_wake_ups_total"):  # noqa: ASYNC110 - each is a request
            # Not in a tight loop: it would hardly let the engine's threads have their turn.
            await asyncio.sleep(0.01)
    await publish(api, "seen")
    async with asyncio.timeout(AT_ONCE):
        answer = await waiting.response() or {}

    assert (bodies(answer["messages"]), answer["registered"]) == (["seen"], True)
