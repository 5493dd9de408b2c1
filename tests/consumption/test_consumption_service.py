"""Receiving and settling through the service, without HTTP, on the embedded engine."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from event_log import events
from eventually import until
from mqgate import bootstrap
from mqgate.consumption.connection import ClientDisconnected
from mqgate.consumption.receive import ReceiveResult
from mqgate.control.registry.model import GroupSpec, TopicSpec
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import InvalidValue
from mqgate.core.lease import SettlementOutcome
from mqgate.core.message import Draft
from mqgate.production.message_writer import Item
from mqgate.testing.clock import ManualClock

AT_ONCE = timedelta(0)
MINUTE = timedelta(minutes=1)


class FakeConnection:
    """A connection whose client disconnects when a test says so."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self._closed = asyncio.Event()
        if is_closed:
            self.close()

    def close(self) -> None:
        self._closed.set()

    def is_disconnected(self) -> bool:
        return self._closed.is_set()

    async def wait_disconnect(self) -> None:
        await self._closed.wait()


class Shop:
    """Topic `orders` with one queue and a group of each mode."""

    def __init__(self, gateway: bootstrap.Gateway) -> None:
        self.gateway = gateway
        self.service = gateway.consumption

    async def open(self) -> None:
        await self.gateway.registry.put_topic("orders", TopicSpec(queues=1), "test")
        for mode in Mode:
            attempts = 1 if mode is Mode.MESSAGE else 5
            spec = GroupSpec(topic="orders", mode=mode, start="earliest", max_attempts=attempts, visibility="30s")
            await self.gateway.registry.put_group(mode, spec, "test")

    def group(self, mode: Mode) -> Group:
        return self.gateway.registry.snapshot.groups[mode]

    async def publish(self, *ids: str) -> None:
        await self.gateway.production.publish("orders", None, [Item(Draft(name, name.encode())) for name in ids])

    async def receive(
        self, mode: Mode, client: str = "", connection: FakeConnection | None = None, **options: Any
    ) -> ReceiveResult:
        wanted = {"max_messages": 10, "max_bytes": 1 << 20, "wait": AT_ONCE, **options}
        return await self.service.receive(self.group(mode), client, connection or FakeConnection(), **wanted)

    async def until_parked(self) -> None:
        async def is_parked() -> bool:
            return self.gateway.long_poll.parked == 1

        await until(is_parked)


@pytest.fixture
async def shop(gateway: bootstrap.Gateway) -> Shop:
    shop = Shop(gateway)
    await shop.open()
    return shop


def ids(received: ReceiveResult) -> list[str]:
    return [message.id for message in received.messages]


async def test_message_mode_signs_a_receipt_for_each_message(shop: Shop) -> None:
    """Each message is settled on its own, so each needs its own proof."""
    await shop.publish("a", "b")

    received = await shop.receive(Mode.MESSAGE)
    (receipts,) = received.receipts
    settled = await shop.service.ack(shop.group(Mode.MESSAGE), receipts)

    assert ids(received) == ["a", "b"]
    assert received.receipt == ""
    assert [result.outcome for result in settled.results] == [SettlementOutcome.APPLIED] * 2


async def test_queue_mode_signs_one_receipt_for_the_batch(shop: Shop) -> None:
    """The batch is leased as a whole; an ack through an offset commits a part of it."""
    await shop.publish("a", "b", "c")
    group = shop.group(Mode.QUEUE)

    received = await shop.receive(Mode.QUEUE)
    with pytest.raises(InvalidValue):
        await shop.service.ack(group, (received.receipt,), through=3)
    settled = await shop.service.ack(group, (received.receipt,), through=0)
    rest = await shop.receive(Mode.QUEUE)

    assert received.receipts == []
    assert [result.outcome for result in settled.results] == [SettlementOutcome.APPLIED]
    assert ids(rest) == ["b", "c"]


async def test_a_receive_applies_carried_receipts_and_returns_their_outcomes(shop: Shop) -> None:
    """One call acknowledges a batch and fetches the next; an invalid receipt does not affect the others."""
    await shop.publish("a", "b")
    first = await shop.receive(Mode.MESSAGE, max_messages=1)

    second = await shop.receive(Mode.MESSAGE, receipts=("forged", first.receipts[0][0]))

    assert ids(second) == ["b"]
    assert [result.outcome for result in second.settled] == [SettlementOutcome.INVALID, SettlementOutcome.APPLIED]
    assert second.leases[0] is None


async def test_a_broadcast_client_cannot_settle_for_another(shop: Shop) -> None:
    """Each client has its own position, also if clients exchange receipts."""
    await shop.publish("a")
    received = await shop.receive(Mode.BROADCAST, "ada")

    carried = await shop.receive(Mode.BROADCAST, "bob", receipts=(received.receipt,))
    settled = await shop.service.ack(shop.group(Mode.BROADCAST), (received.receipt,), client="bob")

    assert [result.outcome for result in carried.settled] == [SettlementOutcome.INVALID]
    assert [result.outcome for result in settled.results] == [SettlementOutcome.INVALID]


async def test_the_leases_of_a_disconnected_client_are_released_uncounted(shop: Shop) -> None:
    """The only allowed delivery must not be used up by a response that was never sent."""
    await shop.publish("a")

    with pytest.raises(ClientDisconnected):
        await shop.receive(Mode.MESSAGE, connection=FakeConnection(is_closed=True))
    again = await shop.receive(Mode.MESSAGE)

    assert ids(again) == ["a"]
    assert again.batches[0].grant.delivery == 1


@pytest.mark.parametrize("has_message", [True, False], ids=["with a message", "empty"])
async def test_a_notice_that_was_not_sent_is_in_the_next_result(shop: Shop, has_message: bool) -> None:
    """A client must learn that it was registered, also if its first connection broke before any message."""
    if has_message:
        await shop.publish("a")

    with pytest.raises(ClientDisconnected):
        await shop.receive(Mode.BROADCAST, "ada", FakeConnection(is_closed=True))
    second = await shop.receive(Mode.BROADCAST, "ada")
    third = await shop.receive(Mode.BROADCAST, "ada")

    assert second.is_registered
    assert not third.is_registered


async def test_a_parked_receive_ends_when_its_client_disconnects(shop: Shop) -> None:
    """A message that arrives later must not be leased to a closed connection."""
    connection = FakeConnection()
    parked = asyncio.create_task(shop.receive(Mode.MESSAGE, connection=connection, wait=MINUTE))
    await shop.until_parked()

    connection.close()
    with pytest.raises(ClientDisconnected):
        await parked
    await shop.publish("a")

    assert ids(await shop.receive(Mode.MESSAGE)) == ["a"]


async def test_an_ack_wakes_a_receive_that_is_parked_behind_the_lease(shop: Shop) -> None:
    """The next batch of a queue is delivered at once, not when a timer fires."""
    await shop.publish("a")
    held = await shop.receive(Mode.QUEUE)
    await shop.publish("b")
    parked = asyncio.create_task(shop.receive(Mode.QUEUE, wait=MINUTE))
    await shop.until_parked()

    await shop.service.ack(shop.group(Mode.QUEUE), (held.receipt,))
    async with asyncio.timeout(30):
        found = await parked

    assert ids(found) == ["b"]


async def test_the_nack_of_the_last_delivery_writes_a_dead_letter(shop: Shop, api: httpx.AsyncClient) -> None:
    """A message that failed for the last time is stored for inspection before the call returns."""
    await shop.publish("a")
    received = await shop.receive(Mode.MESSAGE)

    settled = await shop.service.nack(shop.group(Mode.MESSAGE), received.receipts[0], reason="bad")
    letters = (await api.get("/v1/groups/message/dead-letters")).json()["items"]

    assert [result.outcome for result in settled.results] == [SettlementOutcome.APPLIED]
    assert [(letter["id"], letter["reason"]) for letter in letters] == [("a", "bad")]


async def test_extend_keeps_a_lease_beyond_the_visibility_timeout(shop: Shop, clock: ManualClock) -> None:
    """A slow consumer keeps its message as long as it extends the lease in time."""
    await shop.publish("a")
    received = await shop.receive(Mode.MESSAGE)

    settled = await shop.service.extend(shop.group(Mode.MESSAGE), received.receipts[0], 2 * MINUTE)
    clock.advance(MINUTE)
    meanwhile = await shop.receive(Mode.MESSAGE)

    assert settled.results[0].leased_until == clock.now + MINUTE
    assert ids(meanwhile) == []


async def test_deliveries_and_settlements_are_recorded(shop: Shop, api: httpx.AsyncClient) -> None:
    """Events and metrics count what the service did, whichever dialect called it."""
    await shop.publish("a")
    received = await shop.receive(Mode.MESSAGE, "ada")
    await shop.service.ack(shop.group(Mode.MESSAGE), (*received.receipts[0], "forged"))

    await shop.gateway.events.run_once()

    found = await events(api, "delivered", "acked", "refused")
    metrics = (await api.get("/metrics")).text
    assert sorted((row["kind"], row["outcome"]) for row in found if row["kind"] != "delivered") == [
        ("acked", "applied"),
        ("refused", "invalid"),
    ]
    assert [row["client"] for row in found if row["kind"] == "delivered"] == ["ada"]
    assert 'mqgate_delivered_total{group="message"} 1' in metrics
    assert 'mqgate_settled_total{group="message",outcome="invalid",verb="ack"} 1' in metrics
