"""/v1/alarms: rules, silences, channels and lists."""

from typing import Any

import httpx
import pytest

from mqgate.core.alarms import RuleName

HOOK = {"kind": "webhook", "url": "https://user:password@ops.example/path/token?key=1", "secret": "s" * 16}
UNTIL = "2026-01-01T13:00:00Z"


async def rule(api: httpx.AsyncClient, name: str) -> dict[str, Any]:
    found = (await api.get("/v1/alarms/rules")).json()["items"]
    return next(item for item in found if item["rule"] == name)


async def test_all_rules_are_listed_with_their_settings(api: httpx.AsyncClient) -> None:
    """An operator sees what is watched before anything is set."""
    found = (await api.get("/v1/alarms/rules")).json()["items"]

    assert [item["rule"] for item in found] == list(RuleName)
    assert all(item["enabled"] and item["meaning"] and item["unit"] for item in found)


async def test_a_rule_is_changed_for_all_and_for_one_group(api: httpx.AsyncClient) -> None:
    """A PUT merges; null and DELETE return to what applies otherwise."""
    await api.put("/v1/alarms/rules/backlog_age", json={"threshold": 30, "for": "2m"})
    own = await api.put("/v1/alarms/rules/backlog_age/subjects/billing", json={"threshold": 5})
    merged = await api.put("/v1/alarms/rules/backlog_age/subjects/billing", json={"enabled": False})
    both = await rule(api, "backlog_age")
    await api.put("/v1/alarms/rules/backlog_age", json={"threshold": None})
    default = await rule(api, "backlog_age")
    deleted = await api.delete("/v1/alarms/rules/backlog_age/subjects/billing")

    assert own.json() == {"threshold": 5, "for": 120, "enabled": True}
    assert merged.json() == {"threshold": 5, "for": 120, "enabled": False}
    assert (both["threshold"], both["for"]) == (30, 120)
    assert both["subjects"] == [{"subject": "billing", "threshold": 5, "for": 120, "enabled": False}]
    assert (default["threshold"], default["for"]) == (600, 120)
    assert deleted.status_code == 204
    assert (await rule(api, "backlog_age"))["subjects"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("rules/none", {}, 404, "alarm_rule_not_found"),
        ("rules/backlog_age", {"threshold": -1}, 400, "invalid_value"),
        ("rules/backlog_age", {"for": "soon"}, 400, "invalid_value"),
        ("rules/backlog_age", {"treshold": 1}, 400, "unknown_field"),
        ("rules/late_timers/subjects/x", {"threshold": 1}, 400, "invalid_value"),
        ("channels/ops", {**HOOK, "kind": "pigeon"}, 400, "invalid_value"),
        ("channels/ops", {**HOOK, "url": "file:///etc/passwd"}, 400, "invalid_value"),
        ("channels/ops", {**HOOK, "secret": "short"}, 400, "invalid_value"),
        ("channels/ops", {"kind": "apprise", "url": "nonsense"}, 400, "invalid_value"),
        ("channels/mqgate_ops", HOOK, 400, "invalid_value"),
    ],
)
async def test_mistakes_are_refused(
    api: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    """When they are made, and not when an alarm should fire."""
    answer = await api.put(f"/v1/alarms/{path}", json=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_channel_never_shows_its_secrets(api: httpx.AsyncClient) -> None:
    """Neither in responses nor in the audit log."""
    created = await api.put("/v1/alarms/channels/ops", json=HOOK)
    changed = await api.put("/v1/alarms/channels/ops", json={**HOOK, "secret": ""})
    chat = await api.put("/v1/alarms/channels/chat", json={"kind": "apprise", "url": "slack://TokenA/TokenB/TokenC"})
    shown = [created.text, changed.text, chat.text]
    shown += [(await api.get(path)).text for path in ("/v1/alarms/channels", "/v1/audit")]

    assert (created.status_code, changed.status_code, chat.status_code) == (201, 200, 201)
    assert created.json()["url"] == "https://ops.example/***"
    assert chat.json()["url"] == "slack://***"
    assert not [word for word in ("password", "token", "Token", "s" * 16) for text in shown if word in text]


async def test_a_secret_is_not_kept_for_another_kind_of_channel(api: httpx.AsyncClient) -> None:
    """A webhook without its own secret would not be signed."""
    await api.put("/v1/alarms/channels/ops", json={"kind": "apprise", "url": "json://ops.example"})

    answer = await api.put("/v1/alarms/channels/ops", json={**HOOK, "secret": ""})

    assert (answer.status_code, answer.json()["field"]) == (400, "secret")


async def test_a_silence_is_listed_until_it_ends(api: httpx.AsyncClient, clock: Any) -> None:
    """It says who set it and why."""
    body = {"rule": "backlog_age", "subject": "billing", "endsAt": UNTIL, "reason": "upgrade"}
    created = await api.post("/v1/alarms/silences", json=body)
    (shown,) = (await api.get("/v1/alarms/silences")).json()["items"]
    clock.advance(3_600)

    assert created.status_code == 201
    assert shown == created.json()
    assert (shown["rule"], shown["subject"], shown["actor"], shown["reason"]) == (
        "backlog_age",
        "billing",
        "open",
        "upgrade",
    )
    assert (await api.get("/v1/alarms/silences")).json()["items"] == []
    assert (await api.delete(f"/v1/alarms/silences/{shown['id']}")).json()["code"] == "silence_not_found"


@pytest.mark.parametrize("ends_at", ["2026-01-01T12:00:00Z", "2027-06-01T12:00:00Z"])
async def test_a_silence_has_an_end_within_a_year(api: httpx.AsyncClient, ends_at: str) -> None:
    """One that is forgotten must not hide alarms forever."""
    answer = await api.post("/v1/alarms/silences", json={"endsAt": ends_at})

    assert (answer.status_code, answer.json()["field"]) == (400, "endsAt")


async def test_changes_are_audited(api: httpx.AsyncClient) -> None:
    """Who switched an alarm off is a question after every incident."""
    await api.put("/v1/alarms/rules/backlog_age", json={"enabled": False})
    await api.delete("/v1/alarms/rules/backlog_age")
    silence = (await api.post("/v1/alarms/silences", json={"endsAt": UNTIL, "reason": "quiet"})).json()["id"]
    await api.delete(f"/v1/alarms/silences/{silence}")
    await api.put("/v1/alarms/channels/ops", json=HOOK)
    await api.delete("/v1/alarms/channels/ops")

    entries = (await api.get("/v1/audit")).json()["items"]

    assert [(entry["action"], entry["subject"]) for entry in entries[::-1]] == [
        ("change", "alarm rule backlog_age"),
        ("reset", "alarm rule backlog_age"),
        ("create", f"silence {silence}"),
        ("delete", f"silence {silence}"),
        ("create", "channel ops"),
        ("delete", "channel ops"),
    ]


async def test_a_test_notification_reports_its_outcome(api: httpx.AsyncClient) -> None:
    """An operator checks a channel before it is needed."""
    await api.put("/v1/alarms/channels/ops", json={**HOOK, "url": "http://127.0.0.1:1/"})

    answer = await api.post("/v1/alarms/channels/ops/test")
    missing = await api.post("/v1/alarms/channels/none/test")

    assert (answer.status_code, answer.json()) == (200, {"outcome": "failed", "error": "ConnectError"})
    assert missing.json()["code"] == "channel_not_found"


@pytest.mark.parametrize("path", ["", "/history", "/inbox", "/silences", "/channels"])
async def test_a_malformed_cursor_is_refused(api: httpx.AsyncClient, path: str) -> None:
    """As in every list."""
    answer = await api.get(f"/v1/alarms{path}", params={"cursor": "not a cursor"})

    assert (answer.status_code, answer.json()["field"]) == (400, "cursor")
