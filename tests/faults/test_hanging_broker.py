"""A broker that hangs: its connections stay open, and it does not respond (SIGSTOP).

This is worse than a stopped broker, because only a deadline detects it. The deadline of a call is three seconds.
"""

import asyncio
import time
from typing import Any

import pytest
from fault_calls import Gateway, eventually, key_for, problem, timed

from mqgate.stack import Stack

DEADLINE = 3.0
# A call to the hanging broker takes a deadline. All other calls are much faster.
QUICK = 0.8 * DEADLINE
HUNG, ALIVE = key_for("broker-a"), key_for("broker-b")


@pytest.mark.slow
async def test_a_hanging_broker_delays_only_one_call(gateway: Gateway, pair: Stack) -> None:
    """Publishes without a key and receives use the other broker. Keys of the hanging one get a retryable error."""
    await gateway.shop()
    await gateway.put("topics/unread", queues=16)
    for key in (HUNG, ALIVE):
        await gateway.stored(body="before", key=key)
    assert len(await gateway.drain(wait=0)) == 2

    await asyncio.to_thread(pair.pause, "broker-a")
    try:
        hung_at = time.monotonic()
        await eventually(lambda: _is_quick(gateway), 2 * DEADLINE)
        print(f"without key: quick again {time.monotonic() - hung_at:.2f} s after the broker hung")  # noqa: T201
        for number in range(20):
            _, seconds = await timed(gateway.stored("unread", body=str(number)))
            assert seconds < QUICK, "one topic's experience serves all"
            _, seconds = await timed(gateway.stored(body=str(number)))
            assert seconds < QUICK, "no call waits for a hanging broker"
        keyed, seconds = await timed(gateway.publish(key=HUNG))
        assert problem(keyed) == (503, "queue_unavailable")
        assert seconds < DEADLINE
        received, seconds = await timed(gateway.receive(max=1))
        assert len(received["messages"]) == 1
        assert seconds < QUICK
        await gateway.ack(received)
        await gateway.drain(wait=0)
        received, seconds = await timed(gateway.receive(wait=2))
        assert received["messages"] == []
        assert 2 <= seconds < 2 + QUICK
        (status, readiness, parts), seconds = await timed(gateway.ready())
        assert (status, readiness, parts["broker broker-a"]) == (200, "degraded", "unreachable")
    finally:
        await asyncio.to_thread(pair.resume, "broker-a")

    async def is_taken() -> bool:
        return (await gateway.publish(key=HUNG, body="after")).status_code == 201

    await eventually(is_taken, 5)
    assert "after" in [message["body"] for message in await gateway.drain()]


async def _is_quick(gateway: Gateway) -> bool:
    """Return whether eight calls in a row are fast, so that both brokers were used."""
    responses = [await timed(gateway.publish(body="loose")) for _ in range(8)]
    assert {response.status_code for response, _ in responses} <= {201, 503}
    return all(response.status_code == 201 and seconds < QUICK for response, seconds in responses)


@pytest.mark.slow
async def test_a_repeat_after_an_unknown_outcome_has_the_same_id(gateway: Gateway, pair: Stack) -> None:
    """The repeat under the same key checks the log, and stores at most one more copy."""
    await gateway.shop()
    await gateway.stored(body="warm", key=HUNG)
    envelope = {"body": "once", "key": HUNG, "idempotencyKey": "order-1"}
    await asyncio.to_thread(pair.pause, "broker-a")
    try:
        unknown, seconds = await timed(gateway.publish(**envelope))
        meanwhile = await gateway.publish(**envelope)
    finally:
        await asyncio.to_thread(pair.resume, "broker-a")

    assert problem(unknown) == (503, "unknown")
    assert seconds < 2 * DEADLINE
    assert meanwhile.status_code == 503, "while the log cannot be checked, nothing is decided"
    first = await _repeated(gateway, envelope)
    second = await _repeated(gateway, envelope)
    assert second["duplicate"] is True
    assert first["id"] == second["id"]
    copies = [message for message in await gateway.drain() if message["body"] == "once"]
    assert {copy["id"] for copy in copies} == {first["id"]}
    assert 1 <= len(copies) <= 2


async def _repeated(gateway: Gateway, envelope: dict[str, str]) -> dict[str, object]:
    async def is_answered() -> bool:
        responses.append(await gateway.publish(**envelope))
        return responses[-1].status_code != 503

    responses: list[Any] = []
    await eventually(is_answered, 10)
    assert responses[-1].status_code in {200, 201}, responses[-1].text
    return dict(responses[-1].json())
