"""Waiting receives, line by line of semantics.md: woken by whatever makes a message ready, and by nothing else.

Real time, short waits. A test that says "at once" means well below the wait it would otherwise take.
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
    two_held,
    until,
)

from mqgate import bootstrap
from mqgate.adapters.redis import lease_store
from mqgate.core.leases import message_grant
from mqgate.settings import HttpSettings, Settings
from mqgate.testing.clock import ManualClock

# Far below any wait here, far above what a busy machine needs to wake somebody up.
AT_ONCE = 5.0
LONG = 20


async def timed(answer: Awaitable[Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return await answer, time.monotonic() - began


async def woken_by(
    live: bootstrap.Gateway, event: Callable[[], Awaitable[Any]], count: int = 1, **wish: Any
) -> list[str]:
    """Park, let something happen, and see what comes at once."""
    calls = [Call(live, **{"wait": LONG, **wish}) for _ in range(count)]
    await parked(live, count)
    await event()
    async with asyncio.timeout(AT_ONCE):
        found = [message for call in calls for message in await call.messages()]
    return sorted(bodies(found))


async def test_no_wait_never_parks(live_api: httpx.AsyncClient) -> None:
    """A wait of 0, or none, is answered at once, and is no long poll."""
    await shop(live_api)

    answer, seconds = await timed(receive(live_api, wait=0))

    assert (answer["messages"], answer["state"]) == ([], "ok")
    assert seconds < AT_ONCE
    assert await metric(live_api, 'mqgate_long_polls_total{outcome="timed_out"}') == 0


async def test_a_wait_below_a_second_counts_as_a_second_and_ends_in_time(live_api: httpx.AsyncClient) -> None:
    """One answer, at most wait + 0.5 s."""
    await shop(live_api)

    tries = [await timed(receive(live_api, wait=0.05)) for _ in range(3)]

    assert all(answer["messages"] == [] and seconds >= 1.0 for answer, seconds in tries)
    assert min(seconds for _, seconds in tries) < 1.5  # the best of three: a machine may hold up one of them


async def test_what_is_there_already_is_a_hit_of_the_first_try(live_api: httpx.AsyncClient) -> None:
    """First everywhere without waiting."""
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
    """Whichever queue a message comes to lie in."""
    await shop(live_api, queues=8, mode=mode)
    client = {"clientId": "ada"} if mode == "broadcast" else {}
    await receive(live_api, **client)

    for number in range(10):
        answer = Call(live, wait=LONG, **client)
        await parked(live, 1)
        await publish(live_api, str(number))
        async with asyncio.timeout(AT_ONCE):
            found = await answer.answer()
        assert found is not None
        assert bodies(found["messages"]) == [str(number)]
        receipt = found["messages"][0]["receipt"] if mode == "message" else found["lease"]["receipt"]
        assert await outcome(live_api, "ack", receipt) == (200, "applied")


async def test_a_redelivery_that_is_due_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Also when it was nacked while the other waited already."""
    await shop(live_api)
    await publish(live_api, "a")
    (message,) = await take(live_api)

    assert await woken_by(live, lambda: settle(live_api, "nack", message, delay="200ms")) == ["a"]


async def test_a_lease_that_ended_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A worker died; who waits gets its message when the lease ends and the backoff is over."""
    await shop(live_api, backoff=["100ms"])
    await publish(live_api, "a")
    await take(live_api, visibility=1)

    messages, seconds = await timed(take(live_api, wait=LONG))

    assert [(message["body"], message["delivery"]) for message in messages] == [("a", 2)]
    assert seconds < 1.1 + AT_ONCE


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_lease_that_was_given_to_another_while_one_waited_wakes_when_it_ends(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """The one who took it leaves a timer behind; nobody else would wake the one who stays."""
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
async def test_a_lease_that_a_passer_by_took_wakes_when_it_ends(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """Taken without waiting, between an arrival and the try of the one it woke."""
    await shop(live_api, mode=mode, backoff=[0], visibility=1, queues=1)
    await operate(live_api, "pause")
    stays = Call(live, wait=LONG)
    await parked(live, 1)
    await publish(live_api, "a")
    await until(lambda: live.long_poll.parked == 1)
    resumed, passed_by = await asyncio.gather(operate(live_api, "resume"), receive(live_api))
    answers = [passed_by] if passed_by["messages"] else []

    messages, seconds = await timed(stays.messages())

    assert resumed["paused"] is False
    assert bodies(messages) == ["a"]
    assert seconds < (1 if answers else 0) + AT_ONCE


async def test_every_due_redelivery_wakes_somebody(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Ten messages due one after the other, ten who wait: each gets one when it is due, none waits in vain."""
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


async def test_a_timer_that_is_due_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A delayed message reaches who waits for it when its time has come, not before."""
    await shop(live_api)

    async def publish_and_take() -> list[dict[str, Any]]:
        await live_api.post("/v1/topics/orders/messages", json={"body": "later", "delay": "300ms"})
        return await take(live_api, wait=LONG)

    messages, seconds = await timed(publish_and_take())

    assert bodies(messages) == ["later"]
    assert 0.3 <= seconds < 0.3 + AT_ONCE


async def test_a_freed_place_under_the_cap_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """At the cap a receive parks; an ack is what it waits for."""
    await shop(live_api, maxInFlight=1)
    await publish(live_api, "a", "b")
    (message,) = await take(live_api)

    assert await woken_by(live, lambda: ack(live_api, message)) == ["b"]


async def test_a_span_that_was_freed_wakes(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A never-settled message held the queue; its ack lets it go on, for those who wait too."""
    for store in (message_grant, lease_store):
        monkeypatch.setattr(store, "MAX_SPAN", 2)
    await shop(live_api)
    await publish(live_api, "a", "b", "c")
    first, second = await take(live_api)
    await ack(live_api, second)

    assert await woken_by(live, lambda: ack(live_api, first)) == ["c"]


async def test_an_ack_wakes_who_waits_for_the_next_of_a_key(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Also one that is carried by another receive."""
    await shop(live_api, ordered=True)
    await publish(live_api, "k1", "k2", "k3", key="k")
    (first,) = await take(live_api)

    assert await woken_by(live, lambda: ack(live_api, first)) == ["k2"]


async def test_a_death_wakes_who_waits_for_the_next_of_a_key(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """By the last nack; by the last lease's end, too."""
    await shop(live_api, ordered=True, maxAttempts=1)
    await publish(live_api, "k1", "k2", "k3", key="k")
    (first,) = await take(live_api)
    by_nack = await woken_by(live, lambda: settle(live_api, "nack", first), visibility=1)

    messages, seconds = await timed(take(live_api, wait=LONG))

    assert by_nack == ["k2"]
    assert bodies(messages) == ["k3"]
    assert seconds < 1 + AT_ONCE


async def test_in_an_ordered_group_who_tries_while_keys_are_looked_at_is_not_forgotten(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Many at once, one message each, a hundred times: everybody is served from what is there."""
    await shop(live_api, ordered=True)
    for _ in range(50):
        calls = [Call(live, wait=LONG, max=1) for _ in range(4)]
        await parked(live, 4)
        await publish(live_api, *"abcd")
        async with asyncio.timeout(AT_ONCE):
            found = [message for call in calls for message in await call.messages()]
        assert sorted(bodies(found)) == list("abcd")
        await ack(live_api, *found)


async def test_a_queue_unlocked_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Queue mode: an ack, and a release."""
    await shop(live_api, mode="queue")
    await publish(live_api, "a", "b")
    for verb, left in (("nack", ["a"]), ("ack", ["b"])):
        held = await receive(live_api, max=1)
        receipt = held["lease"]["receipt"]
        call = Call(live, wait=LONG, max=1)
        await parked(live, 1)
        await settle(live_api, verb, receipt)
        async with asyncio.timeout(AT_ONCE):
            found = await call.answer()
        assert found is not None
        assert bodies(found["messages"]) == left
        await settle(live_api, "nack", found["lease"]["receipt"])


async def test_a_queue_unlocked_by_who_takes_another_wakes(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Carried acks free two queues, and their receive takes one of them: the other is for who waits."""
    freed = await two_held(live_api)

    async def settle_both_and_take_one() -> None:
        assert len(await take(live_api, max=1, ack=freed)) == 1

    assert len(await woken_by(live, settle_both_and_take_one, max=1)) == 1


async def test_who_takes_the_queue_it_frees_wakes_nobody(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """With more clients than queues every ack would send one of the others to look, in vain."""
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
async def test_resume_wakes_and_pause_holds_who_waits_already(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """Pause is exact also for those who came before it: invariant 22."""
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

    (done,) = [each for each in (call, late) if each.task.done()]
    assert bodies(await done.messages()) == ["a"]
    for each in (call, late):
        each.hang_up()
    await asyncio.gather(call.task, late.task)


async def test_seek_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """What is to be repeated is ready now."""
    await shop(live_api)
    await publish(live_api, "a")
    await ack(live_api, *await take(live_api))

    assert await woken_by(live, lambda: operate(live_api, "seek", to="earliest")) == ["a"]


async def test_redrive_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A redriven message is an arrival for its group."""
    await shop(live_api, maxAttempts=1)
    await publish(live_api, "a")
    await settle(live_api, "nack", (await take(live_api))[0])

    assert await woken_by(live, lambda: operate(live_api, "dead-letters/redrive", all=True)) == ["a"]


async def test_a_changed_setting_wakes(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A raised cap, a dropped rate limit: who waits goes by what is set now."""
    await shop(live_api, maxInFlight=1)
    await publish(live_api, "a", "b")
    await take(live_api)

    assert await woken_by(live, lambda: put(live_api, "groups/workers", maxInFlight=5)) == ["b"]


async def test_tokens_wake(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A rate-limited receive parks until there are tokens again, and does not spin meanwhile."""
    await shop(live_api, rateLimit={"rate": 2, "burst": 1})
    await publish(live_api, "a", "b")
    began = time.monotonic()
    await settle(live_api, "nack", (await take(live_api))[0], delay=0)
    before = await metric(live_api, "mqgate_empty_wake_ups_total")

    messages = await take(live_api, wait=LONG)

    assert len(messages) == 1
    assert 0.5 <= time.monotonic() - began < 0.5 + AT_ONCE
    assert await metric(live_api, "mqgate_empty_wake_ups_total") - before <= 3


async def test_at_the_cap_nobody_spins(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """A failed message is ready, the cap forbids it: who waits sleeps until a place is free."""
    await shop(live_api, maxInFlight=1, backoff=[0], visibility=2)
    await publish(live_api, "a", "b")
    await settle(live_api, "nack", (await take(live_api))[0], delay=0.05)
    await take(live_api)
    before = await metric(live_api, "mqgate_empty_wake_ups_total")

    answer = await receive(live_api, wait=1)

    assert (answer["messages"], answer["state"]) == ([], "in_flight_cap")
    assert await metric(live_api, "mqgate_empty_wake_ups_total") - before <= 3


async def test_a_deleted_group_answers_who_waits(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """404 at once, and its lease state does not come to life again."""
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
    """Twenty of another tag, then one that matches: one answer, with that."""
    await shop(live_api, filter={"tags": ["red"]})

    async def events() -> None:
        for number in range(20):
            await publish(live_api, str(number), tag="green")
        assert live.long_poll.parked == 1
        await publish(live_api, "match", tag="red")

    assert await woken_by(live, events) == ["match"]


async def test_one_publish_wakes_exactly_one_of_many(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """No thundering herd: one message, one answer, no wake-up without a message."""
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


async def test_the_oldest_of_the_parked_is_served_first(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Fair: nobody waits longer because others came later."""
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


async def test_an_arrival_of_many_wakes_as_many_as_it_can_serve(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """Ten messages in one batch, ten who take one each."""
    await shop(live_api, queues=3)

    assert await woken_by(live, lambda: publish(live_api, *"abcdefghij"), count=10, max=1) == list("abcdefghij")


async def test_what_an_answer_could_not_hold_wakes_the_next(settings: Settings) -> None:
    """Two large messages, an answer has room for one: the other goes to who waits, at once."""
    own = replace(settings, http=HttpSettings(max_answer_bytes=1_500))
    async with bootstrap.gateway(own) as gateway:
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            await shop(api)
            large = ["a" * 1_000, "b" * 1_000]

            assert await woken_by(gateway, lambda: publish(api, *large), count=2) == large


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_a_client_that_hangs_up_passes_its_messages_on(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """While it was parked, or just when it was served: the next in line gets them, uncounted, within a second."""
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
        gone.hang_up()
        await arrival
        answer = await gone.answer()
        if answer is None:
            async with asyncio.timeout(AT_ONCE):
                answer = await stays.answer()
        else:
            stays.hang_up()
            assert await stays.answer() is None
        assert answer is not None
        (message,) = answer["messages"]
        assert (message["body"], message["delivery"]) == (str(number), 1)
        receipt = answer["lease"]["receipt"] if mode == "queue" else message["receipt"]
        assert await outcome(live_api, "ack", receipt) == (200, "applied")
    assert await counts(live_api) == (0, 0, 0)


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_what_a_passer_by_gives_back_wakes_who_waits(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway, mode: str
) -> None:
    """Others poll without waiting and hang up: who was woken in vain meanwhile is woken again."""
    await shop(live_api, mode=mode)
    is_over = False

    async def pass_by() -> None:
        while not is_over:
            await Call(live, hung_up=True).answer()

    async with asyncio.TaskGroup() as passers_by:
        for _ in range(3):
            passers_by.create_task(pass_by())
        for number in range(60):
            stays = Call(live, wait=LONG)
            await parked(live, 1)
            await publish(live_api, str(number))
            async with asyncio.timeout(AT_ONCE):
                answer = await stays.answer()
            assert answer is not None
            assert [(each["body"], each["delivery"]) for each in answer["messages"]] == [(str(number), 1)]
            receipt = answer["lease"]["receipt"] if mode == "queue" else answer["messages"][0]["receipt"]
            assert await outcome(live_api, "ack", receipt) == (200, "applied")
        is_over = True


async def test_in_an_ordered_group_who_begins_to_wait_while_another_looks_at_keys_is_not_forgotten(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """The one who looks is alone when it begins; what it leaves behind must still reach the one who came meanwhile."""
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


async def test_long_polls_are_hits_and_woken_and_timed_out(
    live_api: httpx.AsyncClient, live: bootstrap.Gateway
) -> None:
    """The metrics add up, whatever the mix."""
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


async def test_a_graceful_stop_answers_who_waits(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """At once and empty; and nobody parks any more."""
    await shop(live_api)
    calls = [Call(live, wait=LONG) for _ in range(20)]
    await parked(live, 20)

    live.long_poll.stop()
    async with asyncio.timeout(AT_ONCE):
        answers = [await call.messages() for call in calls]
        late = await take(live_api, wait=LONG)

    assert answers == [[]] * 20
    assert late == []


async def test_who_loses_a_race_keeps_waiting(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Woken, and another was quicker: parked again with the time left, and one answer in the end."""
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


async def test_more_parked_than_allowed_is_refused(settings: Settings) -> None:
    """503 with Retry-After; those who wait already are served."""
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
                call.hang_up()
            await asyncio.gather(*(call.task for call in calls))


@pytest.mark.slow
async def test_no_false_empty(live_api: httpx.AsyncClient, live: bootstrap.Gateway) -> None:
    """Eight queues, one parked client, one message at a time on a random queue, 1,000 times: each at once."""
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


async def test_a_broadcast_client_that_waits_is_not_idle(live: bootstrap.Gateway, live_api: httpx.AsyncClient) -> None:
    """Its place is kept for as long as it waits, though its time to be forgotten is shorter."""
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
async def test_what_a_client_that_hung_up_could_not_be_told_is_told_by_the_next_answer(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, when: str
) -> None:
    """Never a silent jump: else a client whose first connection broke would not know that it begins anew."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/all", topic="orders", mode="broadcast", start="earliest")
    if when == "served":
        await publish(api, "seen")
    gone = Call(gateway, group="all", clientId="ada", wait=LONG, hung_up=when == "served")
    if when == "waiting":
        await parked(gateway, 1)
        gone.hang_up()
    assert await gone.answer() is None
    if when == "waiting":
        await publish(api, "seen")

    first, second = [await receive(api, "all", clientId="ada") for _ in range(2)]

    assert (bodies(first["messages"]), first["registered"]) == (["seen"], True)
    assert "registered" not in second


async def test_what_a_try_in_between_finds_out_is_told_with_the_answer(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """A client that was forgotten and begins anew while it waits hears of it, whenever the answer comes."""
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
        answer = await waiting.answer() or {}

    assert (bodies(answer["messages"]), answer["registered"]) == (["seen"], True)
