"""What Apache's Java client sends, mqgate delivers: the same id, body, key, tag and properties."""

import random
from uuid import uuid4

import httpx
import pytest
from interop_calls import body_of, put, shop, take
from java_client import Java

from mqgate.rocketmq.remoting.record import LZ4, ZLIB, ZSTD

KINDS = {"ZLIB": ZLIB, "LZ4": LZ4, "ZSTD": ZSTD}


async def test_the_id_key_tag_and_properties_are_those_that_java_gave(api: httpx.AsyncClient, java: Java) -> None:
    """An application that moves to mqgate on one side must find the same message on the other."""
    await shop(api)
    properties = {"color": "grün", "雪": "❄ U+2744", "with space": "a=b;c", "trace-id": "0af7651916cd43dd"}

    (sent,) = await java.send("orders", {"body": "hello", "keys": ["k1"], "tag": "new", "properties": properties})
    (message,) = await take(api, 1)

    assert (message["id"], message["queue"], message["offset"]) == (sent["id"], sent["queue"], sent["offset"])
    assert (message["body"], message["key"], message["tag"]) == ("hello", "k1", "new")
    assert message["properties"] == properties


async def test_a_bare_message_has_neither_key_nor_tag_nor_properties(api: httpx.AsyncClient, java: Java) -> None:
    """What RocketMQ keeps for itself beside a body is no concern of consumers."""
    await shop(api)

    (sent,) = await java.send("orders", {"body": "x"})
    (message,) = await take(api, 1)

    assert (message["id"], message["body"]) == (sent["id"], "x")
    assert not {"key", "tag", "properties"} & {name for name, value in message.items() if value}


async def test_several_keys_are_one_text(api: httpx.AsyncClient, java: Java) -> None:
    """Java joins keys by spaces; nothing of them may be lost on the way."""
    await shop(api)

    await java.send("orders", {"body": "x", "keys": ["order-7", "customer-12"]})
    (message,) = await take(api, 1)

    assert message["key"] == "order-7 customer-12"


async def test_an_id_that_the_sender_chose_is_left_untouched(api: httpx.AsyncClient, java: Java) -> None:
    """Who bridges from elsewhere keeps ids over the bridge; they need not look like RocketMQ's."""
    await shop(api)

    (sent,) = await java.send("orders", {"body": "x", "id": "bridge/42-ü"})
    (message,) = await take(api, 1)

    assert sent["id"] == message["id"] == "bridge/42-ü"


@pytest.mark.parametrize("kind", KINDS)
async def test_bodies_that_java_compressed_arrive_as_they_were(api: httpx.AsyncClient, java: Java, kind: str) -> None:
    """Java compresses from 4 KiB on without being asked; a consumer over HTTP cannot know that."""
    await shop(api)
    await put(api, "groups/readers", topic="orders", mode="queue")
    text, noise = "mqgate and RocketMQ, " * 1000, random.Random(7).randbytes(9_000)

    sent = await java.send("orders", {"body": text, "tag": "t"}, {"body": noise}, compression=kind)
    messages = await take(api, 2)
    raw = await java.consume("orders", "readers", 2)

    assert [message["id"] for message in messages] == [each["id"] for each in sent]
    assert [body_of(message) for message in messages] == [text.encode(), noise]
    # The way is written down only of what was compressed indeed.
    assert {each["sysFlag"] & 0x700 for each in raw} == {KINDS[kind]}


async def test_a_batch_arrives_in_its_order_with_an_id_each(api: httpx.AsyncClient, java: Java) -> None:
    """A broker stores a batch's entries unseen: what is beside each body is the client's own doing."""
    await shop(api, queues=4, mode="queue")
    batch = [{"body": f"b{n}", "keys": [f"k{n}"], "tag": "t", "properties": {"n": str(n)}} for n in range(50)]

    sent = await java.send("orders", *batch, batch=True)
    messages = await take(api, 50)

    assert [(each["id"], each["queue"], each["offset"]) for each in messages] == [
        (each["id"], each["queue"], each["offset"]) for each in sent
    ]
    assert [(each["body"], each["key"], each["properties"]["n"]) for each in messages] == [
        (f"b{n}", f"k{n}", str(n)) for n in range(50)
    ]


async def test_what_a_selector_sent_to_one_queue_comes_from_it_in_order(api: httpx.AsyncClient, java: Java) -> None:
    """Java's way to order messages is to choose one queue; queue mode must keep what it promised."""
    await shop(api, queues=4, mode="queue")

    await java.send("orders", *({"body": f"o{n}"} for n in range(20)), queue=2)
    messages = await take(api, 20)

    assert {message["queue"] for message in messages} == {"local:2"}
    assert [message["body"] for message in messages] == [f"o{n}" for n in range(20)]


@pytest.mark.parametrize("size", [1, 4_000_000])
async def test_the_smallest_and_the_largest_body_arrive(api: httpx.AsyncClient, java: Java, size: int) -> None:
    """The largest is what a broker takes at most; it must not be what stops the queue."""
    await shop(api)
    body = random.Random(size).randbytes(size)

    (sent,) = await java.send("orders", {"body": body})
    (message,) = await take(api, 1)

    assert message["id"] == sent["id"]
    assert body_of(message) == body


@pytest.mark.usefixtures("timers")
@pytest.mark.parametrize("delay", [{"delayLevel": 1}, {"delayMs": 1000}])
async def test_a_delay_of_the_brokers_own_delays_and_leaves_no_trace(
    api: httpx.AsyncClient, java: Java, delay: dict[str, int]
) -> None:
    """The broker holds it elsewhere meanwhile and notes so beside it; ids and properties are the sender's again."""
    await shop(api)

    (sent,) = await java.send("orders", {"body": "later", "keys": ["k"], "properties": {"a": "b"}, **delay})
    early = await take(api, 1, wait=0)
    (message,) = await take(api, 1)

    assert not early
    assert (message["id"], message["body"], message["key"]) == (sent["id"], "later", "k")
    assert message["properties"] == {"a": "b"}


async def test_a_group_that_filters_tags_sees_javas_tags(api: httpx.AsyncClient, java: Java) -> None:
    """A filter on our side must mean what a subscription expression means on theirs."""
    await shop(api, filter={"tags": ["new", "änderung"]})

    tags = ("new", "old", "änderung", None)
    await java.send("orders", *({"body": str(tag), **({"tag": tag} if tag else {})} for tag in tags))
    messages = await take(api, 4, wait=1)

    assert sorted(message["body"] for message in messages) == ["new", "änderung"]


@pytest.mark.parametrize("namespace", [""])
async def test_without_a_namespace_names_are_the_bare_ones(api: httpx.AsyncClient, java: Java, namespace: str) -> None:
    """Most clusters know no namespaces: both sides must mean the same topic and group there too."""
    name = f"orders-{uuid4().hex[:8]}"
    await put(api, f"topics/{name}", queues=1)
    await put(api, f"groups/{name}", topic=name)

    (sent,) = await java.send(name, {"body": "x"})
    (theirs,) = await java.consume(name, name, 1)
    (ours,) = await take(api, 1, group=name)

    assert sent["id"] == theirs["id"] == ours["id"]
