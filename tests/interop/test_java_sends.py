"""mqgate delivers messages of Apache's Java client with the same id, body, key, tag and properties."""

import random
from uuid import uuid4

import httpx
import pytest
from interop_calls import body_of, put, shop, take
from java_client import Java

from mqgate.rocketmq.remoting.record import LZ4, ZLIB, ZSTD

KINDS = {"ZLIB": ZLIB, "LZ4": LZ4, "ZSTD": ZSTD}


async def test_id_key_tag_and_properties_of_java_are_kept(api: httpx.AsyncClient, java: Java) -> None:
    """An application must receive the same message with either client."""
    await shop(api)
    properties = {"color": "grün", "雪": "❄ U+2744", "with space": "a=b;c", "trace-id": "0af7651916cd43dd"}

    (sent,) = await java.send("orders", {"body": "hello", "keys": ["k1"], "tag": "new", "properties": properties})
    (message,) = await take(api, 1)

    assert (message["id"], message["queue"], message["offset"]) == (sent["id"], sent["queue"], sent["offset"])
    assert (message["body"], message["key"], message["tag"]) == ("hello", "k1", "new")
    assert message["properties"] == properties


async def test_a_bare_message_has_neither_key_nor_tag_nor_properties(api: httpx.AsyncClient, java: Java) -> None:
    """Consumers must not see RocketMQ's own properties."""
    await shop(api)

    (sent,) = await java.send("orders", {"body": "x"})
    (message,) = await take(api, 1)

    assert (message["id"], message["body"]) == (sent["id"], "x")
    assert not {"key", "tag", "properties"} & {name for name, value in message.items() if value}


async def test_several_keys_are_joined_by_spaces(api: httpx.AsyncClient, java: Java) -> None:
    """Java joins keys by spaces, and no key may be lost."""
    await shop(api)

    await java.send("orders", {"body": "x", "keys": ["order-7", "customer-12"]})
    (message,) = await take(api, 1)

    assert message["key"] == "order-7 customer-12"


async def test_an_id_chosen_by_the_sender_is_kept(api: httpx.AsyncClient, java: Java) -> None:
    """A bridge from another system keeps its ids, which may have any format."""
    await shop(api)

    (sent,) = await java.send("orders", {"body": "x", "id": "bridge/42-ü"})
    (message,) = await take(api, 1)

    assert sent["id"] == message["id"] == "bridge/42-ü"


@pytest.mark.parametrize("kind", KINDS)
async def test_bodies_compressed_by_java_arrive_decompressed(api: httpx.AsyncClient, java: Java, kind: str) -> None:
    """Java compresses bodies from 4 KiB by default, and HTTP consumers must not notice."""
    await shop(api)
    await put(api, "groups/readers", topic="orders", mode="queue")
    text, noise = "mqgate and RocketMQ, " * 1000, random.Random(7).randbytes(9_000)

    sent = await java.send("orders", {"body": text, "tag": "t"}, {"body": noise}, compression=kind)
    messages = await take(api, 2)
    raw = await java.consume("orders", "readers", 2)

    assert [message["id"] for message in messages] == [message["id"] for message in sent]
    assert [body_of(message) for message in messages] == [text.encode(), noise]
    # The flag shows that the bodies were compressed.
    assert {record["sysFlag"] & 0x700 for record in raw} == {KINDS[kind]}


async def test_a_batch_arrives_in_order_with_one_id_per_message(api: httpx.AsyncClient, java: Java) -> None:
    """A broker does not check the messages of a batch: the client sets all of their properties."""
    await shop(api, queues=4, mode="queue")
    batch = [{"body": f"b{n}", "keys": [f"k{n}"], "tag": "t", "properties": {"n": str(n)}} for n in range(50)]

    sent = await java.send("orders", *batch, batch=True)
    messages = await take(api, 50)

    assert [(message["id"], message["queue"], message["offset"]) for message in messages] == [
        (message["id"], message["queue"], message["offset"]) for message in sent
    ]
    assert [(message["body"], message["key"], message["properties"]["n"]) for message in messages] == [
        (f"b{n}", f"k{n}", str(n)) for n in range(50)
    ]


async def test_messages_that_a_selector_sent_to_one_queue_arrive_in_order(api: httpx.AsyncClient, java: Java) -> None:
    """Java orders messages by sending them to one queue, and queue mode must keep that order."""
    await shop(api, queues=4, mode="queue")

    await java.send("orders", *({"body": f"o{n}"} for n in range(20)), queue=2)
    messages = await take(api, 20)

    assert {message["queue"] for message in messages} == {"local:2"}
    assert [message["body"] for message in messages] == [f"o{n}" for n in range(20)]


@pytest.mark.parametrize("size", [1, 4_000_000])
async def test_the_smallest_and_the_largest_body_arrive(api: httpx.AsyncClient, java: Java, size: int) -> None:
    """The largest body that a broker accepts must not block the queue."""
    await shop(api)
    body = random.Random(size).randbytes(size)

    (sent,) = await java.send("orders", {"body": body})
    (message,) = await take(api, 1)

    assert message["id"] == sent["id"]
    assert body_of(message) == body


@pytest.mark.usefixtures("timers")
@pytest.mark.parametrize("delay", [{"delayLevel": 1}, {"delayMs": 1000}])
async def test_a_delay_by_the_broker_does_not_change_the_message(
    api: httpx.AsyncClient, java: Java, delay: dict[str, int]
) -> None:
    """The broker stores the message elsewhere meanwhile. Id and properties must be those of the sender."""
    await shop(api)

    (sent,) = await java.send("orders", {"body": "later", "keys": ["k"], "properties": {"a": "b"}, **delay})
    early = await take(api, 1, wait=0)
    (message,) = await take(api, 1)

    assert not early
    assert (message["id"], message["body"], message["key"]) == (sent["id"], "later", "k")
    assert message["properties"] == {"a": "b"}


async def test_a_tag_filter_matches_the_tags_of_java(api: httpx.AsyncClient, java: Java) -> None:
    """A tag filter must have the same meaning as a subscription expression of Java."""
    await shop(api, filter={"tags": ["new", "änderung"]})

    tags = ("new", "old", "änderung", None)
    await java.send("orders", *({"body": str(tag), **({"tag": tag} if tag else {})} for tag in tags))
    messages = await take(api, 4, wait=1)

    assert sorted(message["body"] for message in messages) == ["new", "änderung"]


@pytest.mark.parametrize("namespace", [""])
async def test_without_a_namespace_names_have_no_prefix(api: httpx.AsyncClient, java: Java, namespace: str) -> None:
    """Most clusters have no namespaces: both clients must use the same topic and group there too."""
    name = f"orders-{uuid4().hex[:8]}"
    await put(api, f"topics/{name}", queues=1)
    await put(api, f"groups/{name}", topic=name)

    (sent,) = await java.send(name, {"body": "x"})
    (theirs,) = await java.consume(name, name, 1)
    (ours,) = await take(api, 1, group=name)

    assert sent["id"] == theirs["id"] == ours["id"]
