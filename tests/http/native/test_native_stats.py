"""/v1/stats: statistics that the pipelines wrote."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from mqgate import bootstrap
from mqgate.settings import Settings
from mqgate.stats.buckets import bucket_of
from mqgate.stats.engine import open_stats
from mqgate.stats.store import StatsStore

NOON = "2026-11-16T12:00:00.000Z"
NOON_MS = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000
SPAN = {"from": "2026-11-16T11:00:00Z", "to": "2026-11-16T13:00:00Z"}


@pytest.fixture
def store(settings: Settings) -> StatsStore:
    return open_stats(settings, is_writing=True)


def lag_sample(minute: int, ready: int, queue: str = "local:0") -> tuple[Any, ...]:
    at = NOON_MS + minute * MINUTE
    return (at, "orders", "billing", "", queue, at + 9_000, 0, 100, 10, ready, 1, 0, at - 21_000)


async def items(api: httpx.AsyncClient, report: str, **asked: Any) -> list[dict[str, Any]]:
    response = await api.get(f"/v1/stats/{report}", params=SPAN | asked)
    assert response.status_code == 200, response.text
    return list(response.json()["items"])


async def test_stats_without_pipelines_return_figures_not_found(api: httpx.AsyncClient) -> None:
    """An empty report would look like no traffic."""
    response = await api.get("/v1/stats/traffic")

    assert response.status_code == 404
    assert (response.json()["code"], "mqgate pipeline run" in response.json()["detail"]) == ("figures_not_found", True)


async def test_traffic_is_grouped_by_the_requested_names(api: httpx.AsyncClient, store: StatsStore) -> None:
    """The same rows serve a chart of a topic and the search for one client."""
    acked = (NOON_MS, "orders", "acked", "", "billing", "c1", "applied", 3, 0, 0)
    store.put({"traffic_minute": [acked, (*acked[:5], "c2", "applied", 4, 0, 0)]})
    store.put({"traffic_minute": [(NOON_MS, "orders", "delivered", "", "billing", "c1", "", 8, 80, 1)]})

    by_kind = await items(api, "traffic", topic="orders")
    by_client = await items(api, "traffic", kind="acked", by="clientId")

    assert by_kind == [
        {"at": NOON, "topic": "orders", "kind": "acked", "count": 7, "bytes": 0, "redelivered": 0},
        {"at": NOON, "topic": "orders", "kind": "delivered", "count": 8, "bytes": 80, "redelivered": 1},
    ]
    assert [(row["clientId"], row["count"]) for row in by_client] == [("c1", 3), ("c2", 4)]


async def test_latency_is_reported_as_percentiles_in_seconds(api: httpx.AsyncClient, store: StatsStore) -> None:
    """Durations of the API are seconds. Percentiles of an hour come from summed buckets, not from averages."""
    buckets = [(NOON_MS, "orders", "billing", "ack", bucket_of(100), 99), (NOON_MS, "orders", "billing", "ack", 40, 1)]
    store.put({"latency_hour": buckets})

    (row,) = await items(api, "latency", step="hour", group="billing")

    assert (row["at"], row["measure"], row["count"]) == (NOON, "ack", 100)
    assert 0.09 < row["p50"] < 0.129
    assert row["p99"] < 0.129


async def test_lag_history_includes_growth_and_drain_time(api: httpx.AsyncClient, store: StatsStore) -> None:
    """Operators need the trend, also for the first row of a page."""
    samples = [lag_sample(0, 400), lag_sample(0, 200, "local:1"), lag_sample(1, 200), lag_sample(1, 100, "local:1")]
    store.put({"lag_minute": samples})

    first, second = await items(api, "lag", group="billing")
    (alone,) = await items(api, "lag", **{"from": str(NOON_MS + MINUTE)})

    assert (first["lag"], first["oldestAge"], first["growth"], first["drainTime"]) == (602, 30.0, None, None)
    assert (second["lag"], second["growth"], second["drainTime"]) == (302, -5.0, 60.4)
    assert alone == second


async def test_redelivery_reports_ratios(api: httpx.AsyncClient, store: StatsStore) -> None:
    """A ratio without a denominator is null, not zero."""
    store.put({"traffic_minute": [(NOON_MS, "orders", "delivered", "", "billing", "c1", "", 8, 80, 2)]})
    polls = [(NOON_MS, "orders", "billing", "c1", "hit", 1), (NOON_MS, "orders", "billing", "c1", "timed_out", 3)]
    store.put({"polls_minute": [*polls, (NOON_MS, "orders", "idle", "c1", "empty", 5)]})

    billing, idle = await items(api, "redelivery")

    assert (billing["ratio"], billing["emptyRatio"], billing["polls"]) == (0.25, 0.75, 4)
    assert (idle["ratio"], idle["emptyRatio"]) == (None, 1.0)


async def test_stats_pages_contain_every_row_once(api: httpx.AsyncClient, store: StatsStore) -> None:
    """Statistics use limit, cursor and next like every list of the API."""
    rows = [(NOON_MS + n * MINUTE, "orders", "acked", "", "g", "", "", 1, 0, 0) for n in range(5)]
    store.put({"traffic_minute": rows})

    seen, cursor = [], None
    while True:
        page = (
            await api.get("/v1/stats/traffic", params=SPAN | {"limit": 2, **cursor} if cursor else SPAN | {"limit": 2})
        ).json()
        seen += [row["at"] for row in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}

    assert len(seen) == len(set(seen)) == 5


async def test_reconciliations_findings_and_stuck_messages_are_shown(api: httpx.AsyncClient, store: StatsStore) -> None:
    """The reconciliation is useful only if its results can be queried."""
    fates = (10, 8, 0, 0, 0, 0, 1, 0, 0, 1)
    store.put({"reconciliation": [(NOON_MS, "orders", "billing", "", *fates, 0, 2, "broken", "", NOON_MS)]})
    store.put({"findings": [(NOON_MS, "orders", "billing", "", "local:0", 7, "missing", "id-7", "below committed")]})
    store.put({"stuck": [("orders", "billing", "local:0", 9, NOON_MS, "", "c1", 12, None, "delivered 12 times")]})

    (judged,) = await items(api, "reconciliation", state="broken")
    (finding,) = await items(api, "findings")
    (stuck,) = await items(api, "stuck")

    assert (judged["published"], judged["missing"], judged["lateAcks"], judged["clientId"]) == (10, 1, 2, None)
    assert (finding["queue"], finding["offset"], finding["id"]) == ("local:0", 7, "id-7")
    assert (stuck["delivery"], stuck["clientId"], stuck["storedAt"]) == (12, "c1", None)
    assert await items(api, "reconciliation", state="clean") == []


@pytest.mark.parametrize(
    "asked",
    [
        {"by": "mood"},
        {"by": "topic,topic"},
        {"step": "week"},
        {"limit": 0},
        {"cursor": "x"},
        {"from": "noon"},
        {"mood": "good"},
    ],
)
async def test_invalid_stats_queries_are_refused(
    api: httpx.AsyncClient, store: StatsStore, asked: dict[str, Any]
) -> None:
    """A wrong query must not cause a 500 or return another report."""
    response = await api.get("/v1/stats/traffic", params=asked)

    assert (response.status_code, response.headers["content-type"]) == (400, "application/problem+json")


async def test_stats_require_an_admin_key(api: httpx.AsyncClient, store: StatsStore) -> None:
    """Statistics name all topics and groups."""
    await api.put("/v1/topics/orders", json={})
    await api.put("/v1/groups/billing", json={"topic": "orders"})
    await api.post("/v1/keys", json={"role": "admin"})
    admin = (await api.post("/v1/keys", json={"role": "admin"})).json()
    assert "key" not in admin, "the first key closed the door"
    for report in ("traffic", "latency", "redelivery", "lag", "reconciliation", "findings", "stuck", "pipelines"):
        assert (await api.get(f"/v1/stats/{report}")).status_code == 401


async def test_metrics_include_the_state_of_pipelines(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, store: StatsStore
) -> None:
    """An alert can fire when pipelines stop, on any machine."""
    store.put({"pipelines": [("minutes", NOON_MS, "running", 7, 100, 33.5, 12, 0, None)]})
    store.put({"pipelines": [("archive", NOON_MS, "failed", 7, 100, None, 0, 3, "disk full")]})

    await gateway.janitor.run_once()

    lines = (await api.get("/metrics")).text.splitlines()
    assert 'mqgate_pipeline_running{pipeline="minutes"} 1.0' in lines
    assert 'mqgate_pipeline_running{pipeline="archive"} 0.0' in lines
    assert 'mqgate_pipeline_behind{pipeline="minutes"} 12.0' in lines
    found = (await api.get("/v1/stats/pipelines")).json()["items"]
    assert [(row["pipeline"], row["state"], row["error"]) for row in found] == [
        ("archive", "failed", "disk full"),
        ("minutes", "running", None),
    ]
