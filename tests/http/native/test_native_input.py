"""Input validation of /v1: malformed JSON, unknown paths, limits."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from native_calls import publish, put, receive, refused

from mqgate import bootstrap
from mqgate.settings import HttpSettings

OpenApi = Callable[..., Awaitable[httpx.AsyncClient]]
JSON = {"content-type": "application/json"}
CALLS = [
    ("POST", "/v1/topics/orders/messages"),
    ("POST", "/v1/groups/workers/receive"),
    ("POST", "/v1/groups/workers/ack"),
    ("POST", "/v1/groups/workers/nack"),
    ("POST", "/v1/groups/workers/extend"),
    ("POST", "/v1/groups/workers/seek"),
    ("POST", "/v1/groups/workers/pause"),
    ("PUT", "/v1/topics/new"),
    ("PUT", "/v1/producers/new"),
    ("PUT", "/v1/groups/new"),
    ("PATCH", "/v1/groups/workers"),
    ("POST", "/v1/keys"),
]
BROKEN = [
    b"{",
    b"{]",
    b"nonsense",
    b"{'a': 1}",
    b'{"a": 1,}',
    b'{"a": NaN}',
    b'{"max": Infinity}',
    b'{"a": "\xff\xfe"}',
    b'{"\xc3": 1}',
    b'{"a": "\xed\xa0\x80"}',
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"[1, 2] trailing",
    b" ",
    b"[" * 50_000,
    b'{"a":' * 50_000,
]


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_invalid_json_is_refused(shop: httpx.AsyncClient, method: str, path: str) -> None:
    """Every operation returns the same 400, never a 500."""
    for raw in BROKEN:
        response = await shop.request(method, path, content=raw, headers=JSON)

        problem = refused(response, 400, response.json()["code"])
        assert problem["code"] in {"invalid_json", "unknown_field", "invalid_value"}, raw[:20]


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_json_of_a_wrong_type_is_refused(shop: httpx.AsyncClient, method: str, path: str) -> None:
    """The response names the expected type."""
    for raw in (b"[]", b"3", b"null", b'"text"', b"true", b"1e999"):
        response = await shop.request(method, path, content=raw, headers=JSON)

        assert refused(response, 400, response.json()["code"])["code"] in {"invalid_value", "invalid_json"}, raw


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_an_unknown_member_is_refused_everywhere(shop: httpx.AsyncClient, method: str, path: str) -> None:
    """A setting without effect would mislead the caller."""
    refused(await shop.request(method, path, json={"colour": "blue"}), 400, "unknown_field", field="colour")


@pytest.mark.parametrize(
    ("raw", "stored"),
    [
        (b'{"body": "a", "body": "b"}', ["b"]),
        (b'{"body": "a", "\\u0062ody": "b"}', ["b"]),
        (b'{"body": {"a": 1, "a": 2}}', ['{"a":1,"a":2}']),
        (b'{"messages": [{"body": "x"}], "messages": [{"body": "y"}]}', ["y"]),
        (b'{"messages": [{"body": "x", "key": "a", "key": "b"}, {"body": "fine"}]}', ["x", "fine"]),
    ],
)
async def test_the_last_of_two_equal_members_counts(shop: httpx.AsyncClient, raw: bytes, stored: list[str]) -> None:
    """Every common JSON parser does this. A body is stored as it was sent."""
    response = await shop.post("/v1/topics/orders/messages", content=raw, headers=JSON)

    assert response.is_success, response.text
    assert sorted(message["body"] for message in (await receive(shop))["messages"]) == sorted(stored)


@pytest.mark.parametrize("path", ["/v1/topics/orders/messages", "/v1/topics/orders/replay"])
async def test_an_item_that_is_nested_too_deeply_fails_alone(shop: httpx.AsyncClient, path: str) -> None:
    """The other items of the batch are stored."""
    deep = b'{"id": "deep", "body": %b}' % (b"[" * 50_000 + b"]" * 50_000)
    fine = [b'{"id": "a", "body": "] , ["}', b'{"id": "b", "body": {"c": "\\"}, ["}}']
    items = [item if "replay" in path else item.replace(b'"id": "', b'"key": "') for item in (fine[0], deep, fine[1])]

    response = await shop.post(path, content=b'{"messages": [%b]}' % b", ".join(items), headers=JSON)

    assert [result["status"] for result in response.json()["results"]] == [201, 400, 201]
    assert response.json()["results"][1]["error"]["code"] == "invalid_json"
    stored = sorted(message["body"] for message in (await receive(shop))["messages"])
    assert stored == ["] , [", '{"c":"\\"}, ["}']


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages": [%b' % (b"[" * 50_000),
        b'{"messages": [%b]}' % (b"[" * 50_000),
        b'{"messages": [1], "messages": [%b]}' % (b"[" * 50_000 + b"]" * 50_000),
        b'{"messages": [%b]} trailing' % (b"[" * 50_000 + b"]" * 50_000),
        b'{"messages": [%b]}' % (b"[" * 700_000 + b"]" * 700_000),
        b'{"body": %b}' % (b"[" * 50_000 + b"]" * 50_000),
    ],
    ids=["cut", "unbalanced", "twice", "trailing", "large", "no batch"],
)
async def test_other_json_that_is_nested_too_deeply_is_refused(shop: httpx.AsyncClient, raw: bytes) -> None:
    """Only a complete batch can be split."""
    response = await shop.post("/v1/topics/orders/messages", content=raw, headers=JSON)

    refused(response, 400, "invalid_json")


async def test_names_in_error_texts_are_truncated(shop: httpx.AsyncClient) -> None:
    """The caller chooses them, and an error text must stay short."""
    for name in ("x" * 50_000, "x" * 100_000 + " - at `$", " - at `$." * 10_000):
        for body in ({name: 1}, {"properties": {name: 1}, "body": "b"}, {"messages": [{name: 1}]}):
            response = await shop.post("/v1/topics/orders/messages", json=body)

            assert response.status_code in {207, 400}
            assert len(response.content) < 2_000


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        ("topics/orders/messages", b'{"messages": [%b1]}' % (b"1," * 4_000_000)),
        ("topics/orders/messages", b'{"body": "b", "properties": {%b"a": "b"}}' % (b'"a":"b",' * 1_000_000)),
        ("topics/orders/messages", b'{"body": [%b1]}' % (b"1," * 4_000_000)),
        ("topics/orders/messages", b'{%b"body": "b"}' % (b'"key":"k",' * 20_000)),
        ("topics/orders/messages", b'{"%b": 1}' % (b" - at `$" * 14_000)),
        ("groups/workers/ack", b'{"receipts": [%b"r"]}' % (b'"%b",' % (b"r" * 1_500) * 1_100)),
        ("groups/workers/receive", b'{"ack": [%b"r"]}' % (b'"r",' * 400_000)),
    ],
    ids=["items", "properties", "body", "duplicates", "name", "receipts", "acks"],
)
async def test_a_refused_request_does_not_block_others(shop: httpx.AsyncClient, path: str, raw: bytes) -> None:
    """Bodies are measured and counted before they are decoded: these took between 4 and 26 seconds."""
    began = time.thread_time()
    response = await shop.post(f"/v1/{path}", content=raw, headers=JSON)
    seconds = time.thread_time() - began

    assert response.status_code in {201, 400, 413}, response.text[:200]
    # CPU time of this thread, with the test's own client; seconds before, tens of milliseconds now.
    assert seconds < 1.0


@pytest.mark.parametrize("headers", [[("Mqgate-Deley", "1h")], [("Mqgate-Key", "a"), ("Mqgate-Key", "b")]])
async def test_an_unknown_or_repeated_mqgate_header_is_refused(
    shop: httpx.AsyncClient, headers: list[tuple[str, str]]
) -> None:
    """Otherwise a delayed message could be delivered immediately without notice."""
    response = await shop.post("/v1/topics/orders/messages", content=b"x", headers=headers)

    assert response.status_code == 400, response.text
    assert not (await receive(shop))["messages"]


async def test_an_unexpected_query_parameter_is_refused(shop: httpx.AsyncClient) -> None:
    """`receive?max=1` must not silently receive 32 messages."""
    for method, path, field in (
        ("POST", "/v1/groups/workers/receive?max=1", "max"),
        ("GET", "/v1/topics/orders?x=1&y=2", "x"),
        ("GET", "/v1/info?caf%C3%A9", "café"),
    ):
        refused(await shop.request(method, path), 400, "unknown_field", field=field)


@pytest.mark.parametrize("delay", ["1_0", "+5", ".5", "5.", "1e", "٣", " 3", "05", "nan", "inf", "-1"])
async def test_a_delay_header_accepts_json_numbers_only(shop: httpx.AsyncClient, delay: str) -> None:
    """Python accepts more number formats."""
    headers = {"Mqgate-Delay": delay.encode()}

    response = await shop.post("/v1/topics/orders/messages", content=b"x", headers=headers)

    refused(response, 400, "invalid_value", field="delay")


async def test_head_returns_the_headers_of_get(api: httpx.AsyncClient) -> None:
    """Load balancers use HEAD for probes."""
    assert (await api.head("/livez")).status_code == 200


async def test_an_unknown_path_is_404(api: httpx.AsyncClient) -> None:
    """The response is a problem document."""
    for path in ("/", "/v1", "/v1/nothing", "/v1/topics/", "/v1/topics/a/b", "/v2/topics"):
        refused(await api.get(path), 404, "route_not_found")


async def test_an_unsupported_method_is_405_with_allow(api: httpx.AsyncClient) -> None:
    """RFC 9110 requires the Allow header."""
    response = await api.request("PATCH", "/v1/topics/orders")

    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "DELETE, GET, PUT"


async def test_a_body_over_the_limit_is_refused(open_api: OpenApi) -> None:
    """The response is 413 with the limit, before the body is read."""
    api = await open_api(max_request_bytes=1_000)
    await put(api, "topics/orders")

    response = await api.post("/v1/topics/orders/messages", content=b"x" * 1_001)

    refused(response, 413, "too_large", limit=1_000)
    assert (await api.post("/v1/topics/orders/messages", content=b"x" * 1_000)).status_code == 201


async def test_a_chunked_body_over_the_limit_is_refused(open_api: OpenApi) -> None:
    """It has the same limit as a body with Content-Length."""
    api = await open_api(max_request_bytes=1_000)
    await put(api, "topics/orders")

    async def chunks(count: int) -> Any:
        for _ in range(count):
            yield b"x" * 100

    whole = await api.post("/v1/topics/orders/messages", content=chunks(10))
    beyond = await api.post("/v1/topics/orders/messages", content=chunks(11))

    assert whole.status_code == 201
    refused(beyond, 413, "too_large", limit=1_000)


@pytest.mark.parametrize("length", ["x", "-1", "1.5", "9" * 30, "9" * 5_000], ids=lambda length: length[:5])
async def test_an_invalid_content_length_is_refused(shop: httpx.AsyncClient, length: str) -> None:
    """Another ASGI server may pass it on. It must not cause a 500."""
    response = await shop.post("/v1/topics/orders/messages", content=b"x", headers={"content-length": length})

    assert response.status_code in {400, 413}, response.text


async def test_headers_that_are_not_utf_8_are_refused(shop: httpx.AsyncClient) -> None:
    """Such a key could not be returned in JSON."""
    response = await shop.post("/v1/topics/orders/messages", content=b"x", headers=[(b"mqgate-key", b"\xff")])

    refused(response, 400, "invalid_value", field="mqgate-key")


async def test_a_query_that_is_not_utf_8_is_refused(shop: httpx.AsyncClient) -> None:
    """Repeated and too many parameters are refused as well."""
    many = "&".join(f"a{number}=1" for number in range(200))
    for query in ("limit=%FF", "limit=1&limit=2", many):
        assert (await shop.get(f"/v1/topics?{query}")).status_code == 400


class Slow:
    """One request over plain ASGI whose body is sent by the test."""

    def __init__(self, gateway: bootstrap.Gateway, size: int, arrived: int = 0) -> None:
        self._gateway = gateway
        self._size = size
        self._missing = size - arrived
        self._rest: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._parts = iter([b"", b"x" * arrived])
        self.is_reading = asyncio.Event()
        self.status = 0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/topics/orders/messages",
            "query_string": b"",
            "headers": [(b"content-length", str(self._size).encode())],
            "client": ("127.0.0.1", 1),
        }
        await self._gateway.app(scope, self._receive, self._send)

    async def _receive(self) -> MutableMapping[str, Any]:
        part = next(self._parts, None)
        if part is not None:
            return {"type": "http.request", "body": part, "more_body": True}
        self.is_reading.set()
        return {"type": "http.request", "body": await asyncio.shield(self._rest), "more_body": False}

    async def _send(self, event: MutableMapping[str, Any]) -> None:
        self.status = event.get("status", self.status)

    async def finish(self) -> int:
        self._rest.set_result(b"x" * self._missing)
        await self.task
        return self.status


async def test_too_many_bytes_in_flight_are_refused(settings: Any, clock: Any) -> None:
    """The response is 503 with Retry-After. Only bytes that have arrived count."""
    limited = replace(settings, http=HttpSettings(max_bytes_in_flight=1_000))
    async with bootstrap.gateway(limited, wall_ms=clock) as gateway:
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            await put(api, "topics/orders")
            announced = Slow(gateway, 900)
            slow = Slow(gateway, 600, arrived=600)
            await announced.is_reading.wait()
            await slow.is_reading.wait()

            beyond = await api.post("/v1/topics/orders/messages", content=b"x" * 401)
            beside = await api.post("/v1/topics/orders/messages", content=b"x" * 400)
            finished = await slow.finish()
            await announced.finish()
            afterwards = await api.post("/v1/topics/orders/messages", content=b"x" * 1_000)

    assert refused(beyond, 503, "overloaded")["retryable"]
    assert (beside.status_code, finished, afterwards.status_code) == (201, 201, 201)


async def test_too_many_concurrent_requests_are_refused(settings: Any, clock: Any) -> None:
    """The response is 503 with Retry-After, and running requests finish."""
    limited = replace(settings, http=HttpSettings(max_requests=1))
    async with bootstrap.gateway(limited, wall_ms=clock) as gateway:
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            await put(api, "topics/orders")
            slow = Slow(gateway, 10)
            await slow.is_reading.wait()

            beyond = await api.get("/v1/topics")
            finished = await slow.finish()
            afterwards = await api.get("/v1/topics")

    refused(beyond, 503, "overloaded")
    assert (finished, afterwards.status_code) == (201, 200)


async def test_a_disconnect_during_the_body_stores_nothing(gateway: bootstrap.Gateway, api: httpx.AsyncClient) -> None:
    """A partial message must not be stored."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/workers", topic="orders", mode="queue")
    events = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[object] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/topics/orders/messages",
        "query_string": b"",
        "headers": [(b"content-length", b"8")],
        "client": ("127.0.0.1", 1),
    }

    async def receive_event() -> Any:
        return events.pop(0)

    async def send_event(event: object) -> None:
        sent.append(event)

    await gateway.app(scope, receive_event, send_event)

    assert sent == []
    assert (await receive(api))["messages"] == []


async def test_a_full_disk_refuses_publishes_and_serves_reads(open_api: OpenApi, settings: Any) -> None:
    """The response is 507. Stored messages are kept, and readiness reports the full disk."""
    small = replace(settings.sqlite, max_bytes=1 << 20)
    api = await open_api({"sqlite": small})
    await put(api, "topics/orders", queues=1)
    stored = []
    for _ in range(2_000):
        response = await api.post("/v1/topics/orders/messages", content=b"x" * 4_000)
        if response.status_code != 201:
            break
        stored.append(response.json())

    problem = refused(response, 507, "storage_full")
    assert problem["retryable"]
    assert 100 < len(stored) < 2_000
    found = await api.get("/v1/topics/orders/queues/local:0/messages?max=1000")
    assert [message["offset"] for message in found.json()["messages"]] == list(range(len(stored)))
    assert (await api.get(f"/v1/topics/orders/messages/{stored[-1]['id']}")).status_code == 200


async def test_publishing_works_after_refused_requests(shop: httpx.AsyncClient) -> None:
    """A refused request has no effect on the next one."""
    for raw in (b"{", b"[]", b'{"body": "a", "bodies": "b"}'):
        await shop.post("/v1/topics/orders/messages", content=raw, headers=JSON)

    (stored,) = await publish(shop, "fine")

    assert stored["offset"] == 0
