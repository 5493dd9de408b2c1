"""Instants at the ends of the calendar, on both control engines."""

from typing import Any

import httpx
import pytest
from native_calls import refused, settle

FIRST = "0001-01-01T00:00:00Z"
LAST = "9999-12-31T23:59:59.999999Z"
EXTREMES: tuple[int | str, ...] = (
    FIRST,
    "0001-01-01T00:00:00.001+00:01",
    "0001-01-02T00:00:00+23:59",
    "1969-12-31T23:59:59.999Z",
    LAST,
    "9999-12-31T23:59:59.999-00:01",
    "9999-12-31T00:00:00-23:59",
    "0000-01-01T00:00:00Z",
    "9999-12-31T24:00:00Z",
    0,
    -1,
    253_402_300_799_999,
    253_402_300_800_000,
    999_999_999_999_999,
    1 << 63,
    10**30,
)
REPORTS = ("traffic", "latency", "redelivery", "lag", "reconciliation", "findings", "stuck")
STEPS = ("traffic?step=hour&", "traffic?step=day&", "latency?step=day&", "redelivery?step=day&")
QUERIES = [
    *((f"/v1/stats/{report}?", field) for report in REPORTS for field in ("from", "to")),
    *((f"/v1/stats/{report}", field) for report in STEPS for field in ("from", "to")),
    *(("/v1/groups/workers/dead-letters?", field) for field in ("from", "to")),
    *(("/v1/groups/workers/dead-letters?key=k&", field) for field in ("from", "to")),
    *(("/v1/scheduled?", field) for field in ("from", "to")),
    *(("/v1/scheduled?topic=orders&", field) for field in ("from", "to")),
    *(("/v1/topics/orders/messages?", field) for field in ("from", "to")),
    *(("/v1/topics/orders/messages?key=k&", field) for field in ("from", "to")),
    ("/v1/topics/orders/queues?", "at"),
]
REPLAYED = {"id": "m1", "topic": "orders", "queue": "local:0", "offset": 0, "body": "again"}
BODIES = [
    ("POST", "/v1/groups/workers/seek", "to", {"dryRun": True}),
    ("POST", "/v1/topics/orders/messages", "deliverAt", {"body": "later"}),
    ("PATCH", "/v1/scheduled/{scheduled}", "deliverAt", {}),
    ("PUT", "/v1/groups/late", "start", {"topic": "orders"}),
    ("POST", "/v1/keys", "expiresAt", {"role": "admin"}),
]


def _faults(responses: list[tuple[Any, httpx.Response]], field: str) -> list[str]:
    """Return the responses that neither succeed nor refuse the value with the name of its field."""
    found = []
    for value, response in responses:
        problem = response.json()
        refusal = (response.status_code, problem.get("code"), problem.get("field"))
        if response.status_code >= 300 and refusal != (400, "invalid_value", field):
            found.append(f"{value}: {refusal}")
    return found


@pytest.mark.parametrize(("url", "field"), QUERIES, ids=[f"{url}{field}" for url, field in QUERIES])
async def test_an_extreme_instant_in_a_query_does_not_cause_a_500(
    either: httpx.AsyncClient, url: str, field: str
) -> None:
    """Arithmetic beyond the calendar raises in Python."""
    responses = [(value, await either.get(f"{url}{field}={str(value).replace('+', '%2B')}")) for value in EXTREMES]

    assert _faults(responses, field) == []


@pytest.mark.parametrize(("method", "url", "field", "body"), BODIES, ids=[f"{case[1]} {case[2]}" for case in BODIES])
async def test_an_extreme_instant_in_a_body_does_not_cause_a_500(
    either: httpx.AsyncClient, method: str, url: str, field: str, body: dict[str, Any]
) -> None:
    """A group or key with such an instant must also work afterwards."""
    scheduled = (await either.post("/v1/topics/orders/messages", json={"body": "far", "delay": "1h"})).json()["id"]
    path = url.format(scheduled=scheduled)
    responses = []
    for value in EXTREMES:
        headers = {}
        response = await either.request(method, path, json={**body, field: value})
        if url.endswith("/keys") and response.status_code == 201:
            headers = {"authorization": f"Bearer {response.json()['key']}"}
            responses.append((value, await either.get("/v1/keys", headers=headers)))
            await either.delete(f"/v1/keys/{response.json()['id']}", headers=headers)
        if url.endswith("/late") and response.status_code == 201:
            responses.append((value, await either.post("/v1/groups/late/receive", json={})))
            await either.delete(path)
        if url.endswith("{scheduled}") and response.status_code == 409:
            continue
        responses.append((value, response))

    assert _faults(responses, field) == []


async def test_a_message_replayed_with_an_extreme_time_is_received(either: httpx.AsyncClient) -> None:
    """A message that is accepted but cannot be rendered would block its group forever."""
    url = "/v1/groups/workers/replay"
    faults = []
    for value in EXTREMES:
        response = await either.post(url, json={"messages": [{**REPLAYED, "storedAt": value}]})
        (result,) = response.json()["results"]
        if "error" in result and (result["error"]["code"], result["error"]["field"]) != ("invalid_value", "storedAt"):
            faults.append(f"{value}: {result}")

    received = await either.post("/v1/groups/workers/receive", json={"max": 100})
    for message in received.json()["messages"]:
        await settle(either, "nack", message["receipt"])
    letters = await either.get("/v1/groups/workers/dead-letters")

    assert faults == []
    assert (received.status_code, letters.status_code) == (200, 200)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offset", -1),
        ("offset", 1 << 63),
        ("offset", 10**30),
        ("queue", ""),
        ("queue", "local\x00:0"),
        ("queue", "q" * 5_000),
        ("topic", ""),
        ("topic", "orders\x00"),
    ],
)
async def test_a_replayed_message_with_an_invalid_origin_is_refused(
    either: httpx.AsyncClient, field: str, value: int | str
) -> None:
    """It could not be stored as a dead letter, so its group would fail forever."""
    message = {**REPLAYED, "storedAt": 0, field: value}

    response = await either.post("/v1/groups/workers/replay", json={"messages": [message]})

    (result,) = response.json()["results"]
    assert (result["error"]["code"], result["error"]["field"]) == ("invalid_value", field)


@pytest.mark.parametrize("field", ["topic", "group", "clientId", "kind"])
async def test_a_name_that_postgresql_cannot_compare_is_refused(either: httpx.AsyncClient, field: str) -> None:
    """A 503 would make the client retry forever."""
    response = await either.get("/v1/stats/traffic", params={field: "a\x00b"})

    refused(response, 400, "invalid_value", field=field)
