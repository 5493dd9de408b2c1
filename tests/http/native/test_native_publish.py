"""POST /v1/topics/{topic}/messages."""

import base64
import json

import httpx
import pytest
from native_calls import bodies, publish, put, receive, refused

from mqgate.core.message import slot_of
from mqgate.testing.clock import ManualClock

URL = "/v1/topics/orders/messages"


async def test_a_stored_message_is_returned_with_its_position(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """201 means stored. Later reads return the same id, queue, offset and time."""
    response = await shop.post(URL, json={"body": "hello"})

    stored = response.json()
    assert response.status_code == 201
    assert (stored["topic"], stored["queue"], stored["offset"]) == ("orders", "local:0", 0)
    assert stored["storedAt"] == "2026-01-01T12:00:00.000Z"
    assert (await shop.get(f"{URL}/{stored['id']}")).json()["body"] == "hello"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('"text"', "text"),
        ('"quoted \\"text\\" \\u00e9"', 'quoted "text" é'),
        ('{"b" : [1, 2.50, {"x":null}] }', '{"b":[1,2.50,{"x":null}]}'),
        ("[ 1,\n2 ]", "[1,2]"),
        ("12345678901234567890.10", "12345678901234567890.10"),
        ("null", "null"),
        ("false", "false"),
    ],
)
async def test_text_is_stored_as_text_and_other_json_compactly(shop: httpx.AsyncClient, given: str, kept: str) -> None:
    """Consumers receive the same value, and numbers keep their digits."""
    raw = f'{{"body": {given}}}'

    response = await shop.post(URL, content=raw, headers={"content-type": "application/json"})

    assert response.status_code == 201, response.text
    assert bodies(await receive(shop)) == [kept]


async def test_binary_bodies_use_base64_in_both_directions(shop: httpx.AsyncClient) -> None:
    """A body that is not UTF-8 is returned as bodyBase64."""
    raw = bytes(range(256))

    response = await shop.post(URL, json={"bodyBase64": base64.b64encode(raw).decode()})

    (message,) = (await receive(shop))["messages"]
    assert response.status_code == 201
    assert base64.b64decode(message["bodyBase64"]) == raw
    assert "body" not in message


async def test_a_body_that_is_not_json_is_the_message(shop: httpx.AsyncClient) -> None:
    """`curl -d hello` publishes hello, with metadata in headers."""
    headers = {
        "content-type": "application/x-www-form-urlencoded",
        "mqgate-key": "k1",
        "mqgate-tag": "t1",
        "Mqgate-Property-Colour": "blue",
    }

    response = await shop.post(URL, content=b"a=1&b=2", headers=headers)

    (message,) = (await receive(shop))["messages"]
    assert response.status_code == 201
    assert message["body"] == "a=1&b=2"
    assert (message["key"], message["tag"], message["properties"]) == ("k1", "t1", {"colour": "blue"})


@pytest.mark.parametrize(
    "content", [b'{"body": "x"}', b'{"bodyBase64": "eA==", "key": "k"}', b'{"messages": [{"body": "x"}]}']
)
async def test_an_envelope_sent_as_a_form_is_refused(shop: httpx.AsyncClient, content: bytes) -> None:
    """Curl sends forms by default; the JSON would be stored as the message, and nobody would notice."""
    headers = {"content-type": "Application/x-www-form-urlencoded; charset=utf-8"}

    problem = refused(await shop.post(URL, content=content, headers=headers), 400, "invalid_value")

    assert "Content-Type: application/json" in problem["detail"]
    assert not (await receive(shop))["messages"]


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b'{"order": 17}', "application/x-www-form-urlencoded"),
        (b'{"key": "k"}', "application/x-www-form-urlencoded"),
        (b'{"body": "x", "colour": "blue"}', "application/x-www-form-urlencoded"),
        (b'{"body": ', "application/x-www-form-urlencoded"),
        (b'{"body": "x"}', "text/plain"),
        (b'{"body": "x"}', "application/octet-stream"),
    ],
)
async def test_other_bodies_are_the_message_byte_for_byte(
    shop: httpx.AsyncClient, content: bytes, content_type: str
) -> None:
    """Only what is an envelope in a form is a mistake."""
    await shop.post(URL, content=content, headers={"content-type": content_type})

    (message,) = (await receive(shop))["messages"]
    assert message["body"] == content.decode()


async def test_an_object_that_is_no_envelope_is_refused_with_the_fix(shop: httpx.AsyncClient) -> None:
    """The first request of many people is the bare object."""
    problem = refused(await shop.post(URL, json={"order": 17}), 400, "unknown_field")

    assert problem["field"] == "order"
    assert 'send {"body": {...}}' in problem["detail"]


async def test_without_a_content_type_the_body_is_the_message(shop: httpx.AsyncClient) -> None:
    """JSON is parsed only if the content type names it."""
    await shop.post(URL, content=b'{"body":"not unwrapped"}')

    assert bodies(await receive(shop)) == ['{"body":"not unwrapped"}']


async def test_a_json_content_type_with_a_charset_is_json(shop: httpx.AsyncClient) -> None:
    """Many clients send one."""
    headers = {"content-type": "Application/JSON; charset=utf-8"}

    await shop.post(URL, content=b'{"body":"unwrapped"}', headers=headers)

    assert bodies(await receive(shop)) == ["unwrapped"]


async def test_headers_accept_utf_8(shop: httpx.AsyncClient) -> None:
    """A key has the same queue in a header and in an envelope."""
    headers = [(b"mqgate-key", "ключ".encode()), (b"mqgate-property-a", "ü".encode())]

    await shop.post(URL, content=b"x", headers=headers)

    (message,) = (await receive(shop))["messages"]
    assert (message["key"], message["properties"]) == ("ключ", {"a": "ü"})


async def test_key_tag_and_properties_are_returned_unchanged(shop: httpx.AsyncClient) -> None:
    """This is invariant 2 of the semantics, over HTTP."""
    properties = {"a": "1", "Case": "Kept", "dotted.name": "ü\u0000\n"}

    await publish(shop, "x", key="k", tag="t", properties=properties)

    (message,) = (await receive(shop))["messages"]
    assert (message["key"], message["tag"], message["properties"]) == ("k", "t", properties)


async def test_messages_of_one_key_use_one_queue(api: httpx.AsyncClient) -> None:
    """The order per key depends on it: CRC-32 of the key over the registered queues."""
    await put(api, "topics/orders", queues=8)

    for key in ("a", "b", "ключ"):
        stored = await publish(api, "1", "2", "3", key=key)

        assert {message["queue"] for message in stored} == {f"local:{slot_of(key) % 8}"}


async def test_a_batch_returns_one_result_per_item(shop: httpx.AsyncClient) -> None:
    """Offsets are in the order of the items. The status is 200 if all succeed."""
    response = await shop.post(URL, json={"messages": [{"body": f"{n}"} for n in range(3)]})

    results = response.json()["results"]
    assert response.status_code == 200
    assert [result["status"] for result in results] == [201] * 3
    assert [result["offset"] for result in results] == [0, 1, 2]
    assert len({result["id"] for result in results}) == 3


async def test_an_invalid_item_does_not_fail_the_others(shop: httpx.AsyncClient) -> None:
    """The status is 207 with one result per item, and valid items are stored."""
    items = [
        {"body": "good"},
        {},
        {"body": "x", "colour": 1},
        {"body": ""},
        {"body": 1, "key": 2},
        {"body": "last"},
    ]

    response = await shop.post(URL, json={"messages": items})

    results = response.json()["results"]
    assert response.status_code == 207
    assert [result["status"] for result in results] == [201, 400, 400, 400, 400, 201]
    codes = [result["error"]["code"] for result in results[1:5]]
    assert codes == ["empty_body", "unknown_field", "empty_body", "invalid_value"]
    assert [result["error"]["index"] for result in results[1:5]] == [1, 2, 3, 4]
    assert bodies(await receive(shop)) == ["good", "last"]


@pytest.mark.parametrize("item", [3, None, "text", []])
async def test_an_item_that_is_no_object_is_refused_alone(shop: httpx.AsyncClient, item: object) -> None:
    """One mistake in a generated batch must not affect the other items."""
    response = await shop.post(URL, json={"messages": [item, {"body": "good"}]})

    assert response.status_code == 207
    assert [result["status"] for result in response.json()["results"]] == [400, 201]


@pytest.mark.parametrize("count", [0, 1_001])
async def test_a_batch_has_1_to_1000_messages(shop: httpx.AsyncClient, count: int) -> None:
    """The error contains the limit, and nothing is stored."""
    response = await shop.post(URL, json={"messages": [{"body": "x"}] * count})

    refused(response, 400, "invalid_value", field="messages", limit=1_000)
    assert not (await receive(shop))["messages"]


@pytest.mark.parametrize("extra", [{"body": "x"}, {"key": "k"}, {"tag": "t"}, {"properties": {"a": "b"}}])
async def test_a_batch_has_no_members_besides_messages(shop: httpx.AsyncClient, extra: dict[str, object]) -> None:
    """A key beside `messages` would have no effect."""
    response = await shop.post(URL, json={"messages": [{"body": "x"}], **extra})

    refused(response, 400, "invalid_value")


@pytest.mark.parametrize(
    ("envelope", "code", "field"),
    [
        ({}, "empty_body", "body"),
        ({"body": ""}, "empty_body", "body"),
        ({"bodyBase64": ""}, "empty_body", "body"),
        ({"body": "x", "bodyBase64": "eA=="}, "invalid_value", "body"),
        ({"bodyBase64": "###"}, "invalid_value", "bodyBase64"),
        ({"bodyBase64": "eA"}, "invalid_value", "bodyBase64"),
        ({"bodyBase64": 1}, "invalid_value", "bodyBase64"),
        ({"body": "x", "key": ""}, "invalid_value", "key"),
        ({"body": "x", "tag": ""}, "invalid_value", "tag"),
        ({"body": "x", "key": "a\x01b"}, "invalid_value", "key"),
        ({"body": "x", "tag": "a\x02b"}, "invalid_value", "tag"),
        ({"body": "x", "properties": {"": "v"}}, "invalid_value", "properties"),
        ({"body": "x", "properties": {"a": ""}}, "invalid_value", "properties.a"),
        ({"body": "x", "properties": {"a": "\x01"}}, "invalid_value", "properties.a"),
        ({"body": "x", "properties": {"\x02": "v"}}, "invalid_value", "properties"),
        ({"body": "x", "properties": {"a": 1}}, "invalid_value", None),
        ({"body": "x", "properties": []}, "invalid_value", "properties"),
        ({"body": "x", "key": 1}, "invalid_value", "key"),
        ({"body": "x", "colour": "blue"}, "unknown_field", "colour"),
        ({"Body": "x"}, "unknown_field", "Body"),
    ],
)
async def test_an_invalid_envelope_is_refused_with_the_member(
    shop: httpx.AsyncClient, envelope: dict[str, object], code: str, field: str | None
) -> None:
    """Both engines refuse what RocketMQ cannot store."""
    response = await shop.post(URL, json=envelope)

    problem = refused(response, 400, code)
    assert field is None or problem["field"] == field
    assert not (await receive(shop))["messages"]


async def test_an_empty_raw_body_is_refused(shop: httpx.AsyncClient) -> None:
    """The same rule applies to raw bodies."""
    refused(await shop.post(URL, content=b"", headers={"content-type": "text/plain"}), 400, "empty_body")


async def test_lone_surrogates_are_refused(shop: httpx.AsyncClient) -> None:
    """They are not valid Unicode, so no consumer could receive them."""
    for raw in (rb'{"body": "\ud800"}', rb'{"body": "x", "key": "\udfff"}', rb'{"body": ["\ud800"]}'):
        response = await shop.post(URL, content=raw, headers={"content-type": "application/json"})

        assert response.status_code == 400, (raw, response.text)


async def test_a_message_over_the_limit_is_refused(open_api: object) -> None:
    """The response is 413 with the limit. In a batch only the large item is refused."""
    api = await open_api(max_message_bytes=100)  # type: ignore[operator]
    await put(api, "topics/orders", queues=1)

    single = await api.post(URL, json={"body": "x" * 101})
    raw = await api.post(URL, content=b"x" * 101)
    batch = await api.post(URL, json={"messages": [{"body": "x" * 101}, {"body": "x" * 100}]})

    refused(single, 413, "too_large", limit=100)
    refused(raw, 413, "too_large", limit=100)
    assert [result["status"] for result in batch.json()["results"]] == [413, 201]


async def test_properties_over_the_limit_are_refused(shop: httpx.AsyncClient) -> None:
    """RocketMQ stores 32 KiB, of which the broker and mqgate use a part."""
    response = await shop.post(URL, json={"body": "x", "properties": {"a": "x" * 40_000}})

    refused(response, 413, "too_large", limit=30_720)


async def test_a_topic_that_is_not_there_is_refused(api: httpx.AsyncClient) -> None:
    """Nothing is created by a typo."""
    refused(await api.post("/v1/topics/nowhere/messages", json={"body": "x"}), 404, "topic_not_found")
    assert (await api.get("/v1/topics")).json()["items"] == []


async def test_a_producer_can_be_named_on_an_open_gateway(shop: httpx.AsyncClient) -> None:
    """Unknown producers and those of another topic are refused."""
    await put(shop, "topics/other", queues=1)
    await put(shop, "producers/shop", topic="orders")
    await put(shop, "producers/foreign", topic="other")

    assert (await shop.post(f"{URL}?producer=shop", json={"body": "x"})).status_code == 201
    refused(await shop.post(f"{URL}?producer=nobody", json={"body": "x"}), 404, "producer_not_found")
    refused(await shop.post(f"{URL}?producer=foreign", json={"body": "x"}), 403, "forbidden")
    refused(await shop.post(f"{URL}?colour=blue", json={"body": "x"}), 400, "unknown_field", field="colour")


async def test_the_rate_limit_of_a_producer_applies(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The response is 429 with Retry-After. The first items of a batch that fit are stored."""
    await put(shop, "producers/shop", topic="orders", rateLimit={"rate": 2, "burst": 3})
    url = f"{URL}?producer=shop"

    batch = await shop.post(url, json={"messages": [{"body": "x"}] * 4})
    single = await shop.post(url, json={"body": "x"})
    clock.advance(0.5)
    later = await shop.post(url, json={"body": "x"})

    assert [result["status"] for result in batch.json()["results"]] == [201, 201, 201, 429]
    assert refused(single, 429, "rate_limited")["retryable"]
    assert later.status_code == 201


async def test_traceparent_becomes_a_property(shop: httpx.AsyncClient) -> None:
    """A trace continues through the queue. A property of the publisher has priority."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    await shop.post(URL, json={"body": "a", "properties": {"b": "c"}}, headers={"traceparent": trace})
    await shop.post(URL, json={"messages": [{"body": "x"}]}, headers={"traceparent": trace})
    await shop.post(URL, content=b"raw", headers={"traceparent": trace})
    await shop.post(URL, json={"body": "a", "properties": {"traceparent": "own"}}, headers={"traceparent": trace})

    properties = [message["properties"] for message in (await receive(shop))["messages"]]
    traced = {"traceparent": trace}
    assert properties == [{"b": "c", **traced}, traced, traced, {"traceparent": "own"}]


async def test_a_deeply_nested_body_does_not_cause_a_500(shop: httpx.AsyncClient) -> None:
    """Invalid input must never cause a 500."""
    raw = b'{"body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    response = await shop.post(URL, content=raw, headers={"content-type": "application/json"})

    assert response.status_code in {201, 400}, response.text


async def test_large_numbers_do_not_cause_a_500(shop: httpx.AsyncClient) -> None:
    """Numbers beyond machine types are kept as text or refused."""
    for number in ("1" * 5_000, "1e999999", "-0", "1E-400"):
        response = await shop.post(URL, content=f'{{"body": {number}}}', headers={"content-type": "application/json"})

        assert response.status_code in {201, 400}, response.text


async def test_compact_json_has_the_same_value(shop: httpx.AsyncClient) -> None:
    """Removing white space must not change the value."""
    value = {"name": 'ü\n"\\ ☃', "list": [1, -2.5e-3, True, None, {}], "": ""}

    await publish(shop, value)

    (body,) = bodies(await receive(shop))
    assert json.loads(body) == value
