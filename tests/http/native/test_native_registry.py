"""Registration of topics, producers and groups."""

from typing import Any

import httpx
import pytest
from native_calls import bodies, publish, put, receive, refused

from mqgate.testing.clock import ManualClock


async def test_a_topic_has_defaults_and_shows_them(api: httpx.AsyncClient) -> None:
    """A PUT without a body is enough: 8 queues, 3 days."""
    created = await api.put("/v1/topics/orders")
    shown = await api.get("/v1/topics/orders")

    assert created.status_code == 201
    assert created.json() == shown.json()
    assert shown.json() == {
        "name": "orders",
        "queues": 8,
        "retention": 259_200.0,
        "retentionBytes": None,
        "createdAt": "2026-01-01T12:00:00.000Z",
        "team": None,
    }


async def test_a_repeated_put_changes_only_given_members(api: httpx.AsyncClient) -> None:
    """The first is 201, later ones are 200. Null removes a limit, an omitted member keeps it."""
    await put(api, "topics/orders", queues=2, retention="1h", retentionBytes=1_000)

    grown = await api.put("/v1/topics/orders", json={"queues": 3})
    unlimited = await api.put("/v1/topics/orders", json={"retention": None, "retentionBytes": None})

    assert grown.status_code == 200
    assert (grown.json()["queues"], grown.json()["retention"], grown.json()["retentionBytes"]) == (3, 3_600.0, 1_000)
    assert (unlimited.json()["retention"], unlimited.json()["retentionBytes"]) == (None, None)


async def test_the_number_of_queues_cannot_be_reduced(api: httpx.AsyncClient) -> None:
    """The messages of a removed queue would be lost."""
    await put(api, "topics/orders", queues=3)

    refused(await api.put("/v1/topics/orders", json={"queues": 2}), 409, "queues_only_grow", field="queues")
    assert (await api.get("/v1/topics/orders")).json()["queues"] == 3


async def test_a_topic_in_use_cannot_be_deleted(shop: httpx.AsyncClient) -> None:
    """Its producers and groups must be deleted first. Then its messages are deleted too."""
    await put(shop, "producers/shop", topic="orders")
    await publish(shop, "old")

    in_use = await shop.delete("/v1/topics/orders")
    for path in ("groups/workers", "producers/shop", "topics/orders"):
        assert (await shop.delete(f"/v1/{path}")).status_code == 204
    gone = await shop.get("/v1/topics/orders")
    await put(shop, "topics/orders", queues=1)
    await put(shop, "groups/workers", topic="orders", mode="queue")

    problem = refused(in_use, 409, "topic_in_use")
    assert "shop" in problem["detail"]
    assert "workers" in problem["detail"]
    refused(gone, 404, "topic_not_found")
    assert (await receive(shop))["messages"] == []


@pytest.mark.parametrize("kind", ["topic", "producer", "group"])
async def test_a_missing_entry_is_404(api: httpx.AsyncClient, kind: str) -> None:
    """With a code of its own for every kind."""
    for method in ("GET", "DELETE"):
        refused(await api.request(method, f"/v1/{kind}s/nothing"), 404, f"{kind}_not_found")


async def test_a_patch_changes_an_existing_group(shop: httpx.AsyncClient) -> None:
    """PATCH never creates an entry."""
    changed = await shop.patch("/v1/groups/workers", json={"visibility": "2m", "maxAttempts": 3})
    missing = await shop.patch("/v1/groups/nobody", json={"visibility": "2m"})

    assert changed.status_code == 200
    assert (changed.json()["visibility"], changed.json()["maxAttempts"]) == (120.0, 3)
    refused(missing, 404, "group_not_found")
    refused(await shop.get("/v1/groups/nobody"), 404, "group_not_found")


@pytest.mark.parametrize("change", [{"topic": "other"}, {"mode": "broadcast"}, {"start": "latest"}])
async def test_fixed_settings_of_a_group_cannot_change(shop: httpx.AsyncClient, change: dict[str, Any]) -> None:
    """PUT and PATCH return 409 and change nothing. The same value is accepted."""
    await put(shop, "topics/other", queues=1)
    before = (await shop.get("/v1/groups/workers")).json()
    (field,) = change

    refused(await shop.put("/v1/groups/workers", json=change), 409, "fixed_setting", field=field)
    refused(await shop.patch("/v1/groups/workers", json=change), 409, "fixed_setting", field=field)

    assert (await shop.get("/v1/groups/workers")).json() == before
    assert (await shop.put("/v1/groups/workers", json={field: before[field]})).status_code == 200


async def test_the_topic_of_a_producer_cannot_change(shop: httpx.AsyncClient) -> None:
    """A different topic is a different producer."""
    await put(shop, "topics/other", queues=1)
    await put(shop, "producers/shop", topic="orders", rateLimit=10)

    refused(await shop.put("/v1/producers/shop", json={"topic": "other"}), 409, "fixed_setting", field="topic")
    changed = await put(shop, "producers/shop", rateLimit={"rate": 5, "burst": 50})

    assert changed["rateLimit"] == {"rate": 5.0, "burst": 50.0}


@pytest.mark.parametrize(
    ("mode", "member"),
    [
        ("queue", {"filter": {"tags": ["a"]}}),
        ("queue", {"ordered": True}),
        ("queue", {"maxInFlight": 5}),
        ("queue", {"clientTtl": "1h"}),
        ("broadcast", {"filter": {"tags": ["a"]}}),
        ("broadcast", {"ordered": True}),
        ("broadcast", {"maxInFlight": 5}),
    ],
)
async def test_a_setting_of_another_mode_is_refused(api: httpx.AsyncClient, mode: str, member: dict[str, Any]) -> None:
    """A setting without effect would mislead the operator."""
    await put(api, "topics/orders", queues=1)

    response = await api.put("/v1/groups/g", json={"topic": "orders", "mode": mode, **member})

    refused(response, 400, "unsupported_by_mode", field=next(iter(member)))
    refused(await api.get("/v1/groups/g"), 404, "group_not_found")


async def test_settings_are_returned_as_given(api: httpx.AsyncClient) -> None:
    """Responses use seconds as numbers, independent of the notation in the request."""
    await put(api, "topics/orders", queues=1)

    group = await put(
        api,
        "groups/all",
        topic="orders",
        mode="broadcast",
        start="2026-01-01T10:00:00+02:00",
        visibility="1500ms",
        maxAttempts=4,
        backoff=["1s", 2.5, "3m"],
        onPoison="block",
        rateLimit=0.5,
        clientTtl="2h",
    )

    assert group["start"] == "2026-01-01T08:00:00.000Z"
    assert (group["visibility"], group["maxAttempts"], group["clientTtl"]) == (1.5, 4, 7_200.0)
    assert (group["backoff"], group["onPoison"]) == ([1.0, 2.5, 180.0], "block")
    assert group["rateLimit"] == {"rate": 0.5, "burst": 1.0}
    assert not group["paused"]
    assert (await api.get("/v1/groups/all")).json() == group


async def test_a_backoff_may_grow_exponentially(shop: httpx.AsyncClient) -> None:
    """Omitted members have their defaults."""
    group = (await shop.patch("/v1/groups/workers", json={"backoff": {"initial": "2s", "jitter": 0}})).json()

    assert group["backoff"] == {"initial": 2.0, "factor": 2.0, "max": 600.0, "jitter": 0.0}


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", ["a", "b"]), ("latest", []), ("2026-01-01T12:00:01Z", ["b"])]
)
async def test_a_group_starts_at_its_start_setting(
    api: httpx.AsyncClient, clock: ManualClock, start: str, expected: list[str]
) -> None:
    """Start offsets are determined at registration, not at the first receive."""
    await put(api, "topics/orders", queues=1)
    await publish(api, "a")
    clock.advance(1)
    await publish(api, "b")
    await put(api, "groups/g", topic="orders", mode="queue", start=start)
    await publish(api, "c")

    assert bodies(await receive(api, "g")) == [*expected, "c"]


async def test_a_group_that_is_registered_again_has_no_old_state(shop: httpx.AsyncClient) -> None:
    """Offsets, receipts and dead letters of the deleted group are gone."""
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]
    await shop.delete("/v1/groups/workers")
    await put(shop, "groups/workers", topic="orders", mode="queue")

    old = await shop.post("/v1/groups/workers/ack", json={"receipt": receipt})

    refused(old, 410, "lease_gone", outcome="gone")
    again = await receive(shop)
    assert (bodies(again), again["lease"]["delivery"]) == (["a"], 1)


async def test_existing_groups_read_new_queues(shop: httpx.AsyncClient) -> None:
    """Groups that were registered before a topic grew miss no message."""
    await put(shop, "topics/orders", queues=2)
    stored = await publish(shop, "a", "b")

    seen = [body for _ in range(2) for body in bodies(await receive(shop))]

    assert {message["queue"] for message in stored} == {"local:0", "local:1"}
    assert sorted(seen) == ["a", "b"]


@pytest.mark.parametrize("kind", ["topic", "producer", "group"])
async def test_lists_are_paged_by_name(api: httpx.AsyncClient, kind: str) -> None:
    """The cursor continues after the last name, and is null at the end."""
    await put(api, "topics/t")
    body: dict[str, Any] = {"producer": {"topic": "t"}, "group": {"topic": "t", "mode": "queue"}}.get(kind, {})
    names = [f"n{number}" for number in (3, 1, 4, 2, 5)]
    for name in names:
        await put(api, f"{kind}s/{name}", **body)
    expected = sorted([*names, "t"] if kind == "topic" else names)

    found, cursor = [], None
    while True:
        page = (await api.get(f"/v1/{kind}s", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        assert len(page["items"]) <= 2
        found += [item["name"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break

    assert found == expected
    assert [item["name"] for item in (await api.get(f"/v1/{kind}s")).json()["items"]] == expected


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "ten", "", "1.5", "99999999999999999999"])
async def test_an_invalid_limit_is_refused(api: httpx.AsyncClient, limit: str) -> None:
    """The limit is 1 to 1,000 for every list."""
    for path in ("topics", "producers", "groups", "keys", "audit"):
        refused(await api.get(f"/v1/{path}?limit={limit}"), 400, "invalid_value", field="limit")


@pytest.mark.parametrize("name", ["a.b", "a b", "é", "x" * 101, "mqgate_own", "a%00b", "a:b"])
async def test_an_invalid_name_is_refused(api: httpx.AsyncClient, name: str) -> None:
    """RocketMQ does not accept it, or it is reserved."""
    await put(api, "topics/orders")

    refused(await api.put(f"/v1/topics/{name}"), 400, "invalid_value", field="topic")
    refused(await api.put(f"/v1/producers/{name}", json={"topic": "orders"}), 400, "invalid_value", field="producer")
    group = {"topic": "orders", "mode": "queue"}
    refused(await api.put(f"/v1/groups/{name}", json=group), 400, "invalid_value", field="group")


@pytest.mark.parametrize("name", ["a", "A-Z_09", "x" * 100])
async def test_a_valid_name_is_accepted(api: httpx.AsyncClient, name: str) -> None:
    """Names have 1 to 100 characters of A-Z a-z 0-9 _ -."""
    assert (await api.put(f"/v1/topics/{name}")).status_code == 201


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("topics/t", {"queues": 0}, "queues"),
        ("topics/t", {"queues": 1_025}, "queues"),
        ("topics/t", {"queues": "8"}, "queues"),
        ("topics/t", {"queues": None}, "queues"),
        ("topics/t", {"retention": 0}, "retention"),
        ("topics/t", {"retention": -1}, "retention"),
        ("topics/t", {"retention": "3 days"}, "retention"),
        ("topics/t", {"retention": 1e300}, "retention"),
        ("topics/t", {"retentionBytes": 0}, "retentionBytes"),
        ("topics/t", {"retentionBytes": 1 << 70}, "retentionBytes"),
        ("producers/p", {}, "topic"),
        ("producers/p", {"topic": "orders", "rateLimit": 0}, "rateLimit"),
        ("producers/p", {"topic": "orders", "rateLimit": -1}, "rateLimit"),
        ("producers/p", {"topic": "orders", "rateLimit": 1e-12}, "rateLimit"),
        ("producers/p", {"topic": "orders", "rateLimit": 1e10}, "rateLimit"),
        ("groups/g", {"topic": "orders", "rateLimit": {"rate": 1e-300, "burst": 5}}, "rateLimit"),
        ("producers/p", {"topic": "orders", "rateLimit": {"rate": 1, "burst": 0}}, "rateLimit.burst"),
        ("producers/p", {"topic": "orders", "rateLimit": {"burst": 5}}, None),
        ("groups/g", {"mode": "queue"}, "topic"),
        ("groups/g", {"topic": "orders", "mode": "fanout"}, "mode"),
        ("groups/g", {"topic": "orders", "mode": "queue", "start": "yesterday"}, "start"),
        ("groups/g", {"topic": "orders", "mode": "queue", "start": "2026-01-01T00:00:00"}, "start"),
        ("groups/g", {"topic": "orders", "mode": "queue", "start": "2026-13-01T00:00:00Z"}, "start"),
        ("groups/g", {"topic": "orders", "mode": "queue", "start": -1}, "start"),
        ("groups/g", {"topic": "orders", "mode": "queue", "start": 1 << 60}, "start"),
        ("groups/g", {"topic": "orders", "mode": "queue", "visibility": 0.5}, "visibility"),
        ("groups/g", {"topic": "orders", "mode": "queue", "visibility": "13h"}, "visibility"),
        ("groups/g", {"topic": "orders", "mode": "queue", "maxAttempts": 0}, "maxAttempts"),
        ("groups/g", {"topic": "orders", "mode": "queue", "maxAttempts": 1_001}, "maxAttempts"),
        ("groups/g", {"topic": "orders", "mode": "queue", "backoff": []}, "backoff"),
        ("groups/g", {"topic": "orders", "mode": "queue", "backoff": ["x"]}, "backoff[0]"),
        ("groups/g", {"topic": "orders", "mode": "queue", "backoff": [1] * 101}, "backoff"),
        ("groups/g", {"topic": "orders", "mode": "queue", "backoff": {"factor": 0.5}}, "backoff.factor"),
        ("groups/g", {"topic": "orders", "mode": "queue", "backoff": {"jitter": 2}}, "backoff.jitter"),
        ("groups/g", {"topic": "orders", "mode": "queue", "backoff": {"initial": -1}}, "backoff.initial"),
        ("groups/g", {"topic": "orders", "mode": "queue", "onPoison": "ignore"}, "onPoison"),
        ("groups/g", {"topic": "orders", "mode": "broadcast", "clientTtl": 0.5}, "clientTtl"),
    ],
)
async def test_an_invalid_setting_is_refused_with_its_name(
    api: httpx.AsyncClient, path: str, body: dict[str, Any], field: str | None
) -> None:
    """The response is 400 with the member, and nothing is registered."""
    await put(api, "topics/orders")

    problem = refused(await api.put(f"/v1/{path}", json=body), 400, "invalid_value")

    assert field is None or problem["field"] == field
    assert (await api.get(f"/v1/{path}")).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("topics/t", {"colour": 1}, "colour"),
        ("producers/p", {"topic": "orders", "colour": 1}, "colour"),
        ("producers/p", {"topic": "orders", "rateLimit": {"rate": 1, "x": 1}}, "rateLimit.x"),
        ("groups/g", {"topic": "orders", "mode": "queue", "max_attempts": 3}, "max_attempts"),
        ("groups/g", {"topic": "orders", "mode": "queue", "backoff": {"x": 3}}, "backoff.x"),
    ],
)
async def test_an_unknown_member_is_refused_by_name(
    api: httpx.AsyncClient, path: str, body: dict[str, Any], field: str
) -> None:
    """A setting we do not honour is never accepted."""
    await put(api, "topics/orders")

    refused(await api.put(f"/v1/{path}", json=body), 400, "unknown_field", field=field)


async def test_an_entry_for_a_missing_topic_is_refused(api: httpx.AsyncClient) -> None:
    """No entry may refer to a missing topic."""
    group = {"topic": "nowhere", "mode": "queue"}

    refused(await api.put("/v1/producers/p", json={"topic": "nowhere"}), 404, "topic_not_found")
    refused(await api.put("/v1/groups/g", json=group), 404, "topic_not_found")


async def test_every_change_has_an_audit_entry(shop: httpx.AsyncClient) -> None:
    """Entries are listed newest first, with actor, subject and reason."""
    await shop.post("/v1/groups/workers/pause", json={"reason": "lunch"})
    await shop.post("/v1/groups/workers/seek", json={"to": "latest", "reason": "skip"})
    await shop.delete("/v1/groups/workers")

    acts = (await shop.get("/v1/audit")).json()["items"]

    assert [(act["action"], act["subject"], act["reason"]) for act in acts] == [
        ("delete", "group workers", None),
        ("seek", "group workers", "skip"),
        ("pause", "group workers", "lunch"),
        ("create", "group workers", None),
        ("create", "topic orders", None),
    ]
    assert {act["actor"] for act in acts} == {"open"}
    first = (await shop.get("/v1/audit?limit=2")).json()
    second = (await shop.get(f"/v1/audit?limit=3&cursor={first['next']}")).json()
    assert [*first["items"], *second["items"]] == acts
    assert second["next"] is None
