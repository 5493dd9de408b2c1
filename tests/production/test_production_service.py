"""Publishing through the service, without HTTP, on the embedded engine."""

from datetime import timedelta

import httpx
import pytest

from event_log import events
from mqgate import bootstrap
from mqgate.control.registry.model import ProducerSpec, RateSpec, TopicSpec
from mqgate.core.errors import (
    Forbidden,
    IdempotencyMismatch,
    InvalidValue,
    MqgateError,
    ProducerNotFound,
    RateLimited,
    TopicNotFound,
)
from mqgate.core.message import Draft
from mqgate.production.idempotency import derived_id
from mqgate.production.message_writer import Item, Published
from mqgate.production.service import ProductionService
from mqgate.testing.clock import ManualClock


@pytest.fixture
async def service(gateway: bootstrap.Gateway) -> ProductionService:
    """Topics `orders` and `bills`; producers `shop` and `slow` (2 messages at once) of `orders`."""
    registry = gateway.registry
    for topic in ("orders", "bills"):
        await registry.put_topic(topic, TopicSpec(queues=1), "test")
    await registry.put_producer("shop", ProducerSpec(topic="orders"), "test")
    slow = ProducerSpec(topic="orders", rate_limit=RateSpec(rate=1, burst=2))
    await registry.put_producer("slow", slow, "test")
    return gateway.production


def item(message_id: str, body: bytes = b"text") -> Item:
    return Item(Draft(message_id, body))


def keyed(key: str, body: bytes) -> Item:
    return Item(Draft(derived_id("orders", key, body), body), None, key)


def published(outcomes: list[Published | MqgateError]) -> list[Published]:
    """Return the outcomes, all of which must be successes."""
    found = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    assert found == outcomes
    return found


async def test_each_message_has_an_outcome_in_the_order_given(
    service: ProductionService, gateway: bootstrap.Gateway, clock: ManualClock
) -> None:
    """A caller matches outcomes to messages by their position only."""
    due = clock.now + timedelta(hours=1)
    invalid = InvalidValue("not a message", field="body")

    outcomes = await service.publish("orders", "shop", [item("a"), invalid, Item(Draft("b", b"later"), due), item("c")])

    first, error, later, last = outcomes
    assert error is invalid
    assert [found.id for found in published([first, later, last])] == ["a", "b", "c"]
    assert published([first])[0].stored is not None
    assert published([later])[0] == Published("b", None, due)
    assert published([last])[0].stored is not None
    clock.advance(timedelta(hours=2))
    assert await gateway.dispatcher.run_once() == 1


@pytest.mark.parametrize(
    ("topic", "producer", "error"),
    [("absent", None, TopicNotFound), ("orders", "absent", ProducerNotFound), ("bills", "shop", Forbidden)],
)
async def test_nothing_is_stored_for_an_unknown_topic_or_a_wrong_producer(
    service: ProductionService, api: httpx.AsyncClient, topic: str, producer: str | None, error: type[MqgateError]
) -> None:
    """Registration is checked before the first write, in one place for all dialects."""
    with pytest.raises(error):
        await service.publish(topic, producer, [item("a")])

    assert (await api.get("/v1/topics/bills/messages/a")).status_code == 404


async def test_messages_above_the_rate_limit_are_refused_from_the_end(service: ProductionService) -> None:
    """The accepted messages keep their order, and the caller repeats only the rest."""
    outcomes = await service.publish("orders", "slow", [item("a"), item("b"), item("c")])

    assert [outcome.id for outcome in published(outcomes[:2])] == ["a", "b"]
    assert isinstance(outcomes[2], RateLimited)


async def test_a_known_idempotency_key_is_not_stored_again(service: ProductionService) -> None:
    """A producer may repeat a publish after a lost response; another body under the same key is an error."""
    (first,) = published(await service.publish("orders", None, [keyed("k", b"one")]))

    again, other = await service.publish("orders", None, [keyed("k", b"one"), keyed("k", b"two")])

    assert again == first._replace(is_duplicate=True)
    assert isinstance(other, IdempotencyMismatch)


async def test_accepted_and_refused_messages_are_recorded(
    service: ProductionService, gateway: bootstrap.Gateway, api: httpx.AsyncClient
) -> None:
    """Statistics count what the service decided, whichever dialect called it."""
    await service.publish("orders", "slow", [item("a"), InvalidValue("bad", field="body"), item("b"), item("c")])

    await gateway.events.run_once()

    found = await events(api, "published", "refused")
    counted = [(row["kind"], row["producer"], row["outcome"], row["count"]) for row in found]
    assert sorted(counted, key=str) == [
        ("published", "slow", None, 1),
        ("published", "slow", None, 1),
        ("refused", "slow", "invalid_value", 1),
        ("refused", "slow", "rate_limited", 1),
    ]


async def test_a_replay_needs_no_producer_and_keeps_the_id(
    service: ProductionService, gateway: bootstrap.Gateway
) -> None:
    """Consumers recognise a replayed message by its id."""
    topic = await gateway.registry.topic("orders")
    (before,) = published(await service.publish("orders", None, [item("a")]))

    (after,) = published(await service.replay(topic, [item("a")]))

    assert after.id == before.id
    assert before.stored is not None
    assert after.stored is not None
    assert after.stored.offset == before.stored.offset + 1
