"""Messages published through mqgate reach Apache's Java client with the same id, keys, tag, properties and body."""

import base64
import random
from collections import defaultdict
from typing import Any

import httpx
from interop_calls import publish, put, shop, take
from java_client import Java

# Properties that a broker or the Java client adds.
ADDED = {"UNIQ_KEY", "KEYS", "TAGS", "MSG_REGION", "TRACE_ON", "CLUSTER", "MIN_OFFSET", "MAX_OFFSET", "WAIT"}
ADDED |= {"CONSUME_START_TIME"}


def users(message: dict[str, Any]) -> dict[str, str]:
    """Return the user properties."""
    return {name: value for name, value in message["properties"].items() if name not in ADDED}


async def test_a_message_has_the_same_id_keys_tag_properties_and_body(api: httpx.AsyncClient, java: Java) -> None:
    """Java applications must not notice who published a message."""
    await shop(api)
    properties = {"color": "grün", "雪": "❄ U+2744", "with space": "a=b;c"}

    response = await api.post(
        "/v1/topics/orders/messages", json={"body": "höllo", "key": "k1", "tag": "new", "properties": properties}
    )
    (message,) = await java.consume("orders", "workers", 1)

    published = response.json()
    assert (message["id"], message["queue"], message["offset"]) == tuple(
        published[member] for member in ("id", "queue", "offset")
    )
    assert (message["topic"], message["body"].decode(), message["keys"], message["tag"]) == (
        "orders",
        "höllo",
        "k1",
        "new",
    )
    assert users(message) == properties


async def test_a_batch_arrives_complete_and_in_queue_order(api: httpx.AsyncClient, java: Java) -> None:
    """Keys select queues. Within a queue, Java must receive the order of the request."""
    await shop(api, queues=4)
    envelopes = [{"body": f"b{n}", "key": f"k{n % 7}", "tag": "t", "properties": {"n": str(n)}} for n in range(60)]

    published = await publish(api, *envelopes, *({"body": f"loose {n}"} for n in range(20)))
    messages = await java.consume("orders", "workers", 80)

    expected, seen = defaultdict(list), defaultdict(list)
    for sent in sorted(published, key=lambda message: message["offset"]):
        expected[sent["queue"]].append((sent["offset"], sent["id"]))
    for message in messages:
        seen[message["queue"]].append((message["offset"], message["id"]))
    assert seen == expected
    by_id = {message["id"]: message for message in messages}
    received = [by_id[outcome["id"]] for outcome in published[:60]]
    assert [(message["body"].decode(), message["keys"], message["tag"], users(message)) for message in received] == [
        (envelope["body"], envelope["key"], "t", envelope["properties"]) for envelope in envelopes
    ]


async def test_bodies_of_any_kind_and_size_arrive(api: httpx.AsyncClient, java: Java) -> None:
    """Binary bodies, and bodies that Java would compress, are sent unchanged."""
    await shop(api)
    bodies = [b"\x00", random.Random(1).randbytes(50_000), b"\xff" * 3_000_000]

    await publish(api, *({"bodyBase64": base64.b64encode(body).decode()} for body in bodies))
    messages = await java.consume("orders", "workers", 3)

    assert sorted(len(message["body"]) for message in messages) == [1, 50_000, 3_000_000]
    assert {message["body"] for message in messages} == set(bodies)


async def test_user_properties_with_reserved_names_have_no_effect_in_rocketmq(
    api: httpx.AsyncClient, java: Java
) -> None:
    """For all reserved names of this release: a user's DELAY must not delay, and a user's KEYS must not be indexed."""
    await shop(api)
    await put(api, "groups/javas", topic="orders")
    names = await java.property_names()
    properties = dict.fromkeys(names, "3")

    single = await api.post("/v1/topics/orders/messages", json={"body": "s", "properties": properties})
    batch = await publish(api, {"body": "b0", "key": "k", "properties": properties}, {"body": "b1", "key": "k"})
    ours = await take(api, 3)
    theirs = await java.consume("orders", "javas", 3)

    assert {"KEYS", "TAGS", "DELAY", "UNIQ_KEY", "TIMER_DELAY_MS", "WAIT"} <= set(names)
    assert [message["properties"] for message in ours[:2]] == [properties, properties]
    ids = [single.json()["id"], *(message["id"] for message in batch)]
    assert [(message["id"], message.get("keys"), message.get("tag")) for message in theirs] == [
        (ids[0], None, None),
        (ids[1], "k", None),
        (ids[2], "k", None),
    ]
    assert not users(theirs[0]).keys() & set(names)


async def test_a_scheduled_message_arrives_with_the_id_of_the_publish(api: httpx.AsyncClient, java: Java) -> None:
    """A delay adds nothing to the message, and Java receives it when it is due."""
    await shop(api)

    response = await api.post(
        "/v1/topics/orders/messages",
        json={"body": "later", "key": "k", "properties": {"a": "b"}, "delay": "1s"},
    )
    assert response.status_code == 202, response.text
    (message,) = await java.consume("orders", "workers", 1)

    assert (message["id"], message["body"], message["keys"]) == (response.json()["id"], b"later", "k")
    assert users(message) == {"a": "b"}


async def test_redelivery_adds_nothing_to_the_topic(api: httpx.AsyncClient, java: Java) -> None:
    """A failed message stays in its queue, so other groups, including those of Java, receive it once."""
    await shop(api, backoff=["100ms"])
    await put(api, "groups/javas", topic="orders")
    (published,) = await publish(api, {"body": "x", "key": "k"})
    first = (await api.post("/v1/groups/workers/receive", json={})).json()["messages"][0]
    await api.post("/v1/groups/workers/nack", json={"receipt": first["receipt"], "reason": "not yet"})

    (again,) = await take(api, 1)
    seen = await java.consume("orders", "javas", 1)
    ends = (await api.get("/v1/topics/orders/queues")).json()["items"]

    assert (first["delivery"], again["delivery"]) == (1, 2)
    assert published["id"] == first["id"] == again["id"]
    assert [message["id"] for message in seen] == [published["id"]]
    assert sum(queue["max"] for queue in ends) == 1


async def test_a_java_subscription_filters_by_our_tags(api: httpx.AsyncClient, java: Java) -> None:
    """The broker filters by the hash of the TAGS property."""
    await shop(api)
    tags = ("new", "old", "änderung")

    await publish(api, *({"body": tag, "tag": tag} for tag in tags), {"body": "none"})
    messages = await java.consume("orders", "workers", 2, tags="new || änderung")

    assert [message["body"].decode() for message in messages] == ["new", "änderung"]


async def test_mqadmin_finds_messages_by_id_and_by_key(api: httpx.AsyncClient, java: Java) -> None:
    """Operators search by the id or the key in the log of an application."""
    await shop(api)
    (published,) = await publish(api, {"body": "find me", "key": "order-7"})
    await take(api, 1)

    by_id = await java.mqadmin("queryMsgByUniqueKey", "-t", java.wire("orders"), "-i", published["id"])
    by_key = await java.mqadmin("queryMsgByKey", "-t", java.wire("orders"), "-k", "order-7")

    assert f"UNIQ_KEY={published['id']}" in by_id
    assert published["id"] in by_key
