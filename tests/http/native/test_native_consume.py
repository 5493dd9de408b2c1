"""POST /v1/groups/{group}/receive, ack, nack, extend in queue and broadcast mode."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from native_calls import bodies, lag, publish, put, receive, refused, settle

from mqgate import bootstrap
from mqgate.settings import GroupSettings, Settings
from mqgate.testing.clock import ManualClock

OpenApi = Callable[..., Awaitable[httpx.AsyncClient]]
RECEIVE = "/v1/groups/workers/receive"


def client_of(gateway: bootstrap.Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=gateway.app), base_url="http://localhost")


async def test_a_batch_comes_with_one_lease_for_all_of_it(shop: httpx.AsyncClient) -> None:
    """Queue mode: the lease names queue, range, end and delivery; messages have no receipt of their own."""
    await publish(shop, "a", "b", "c")

    received = await receive(shop, max=2)

    lease = received["lease"]
    assert bodies(received) == ["a", "b"]
    assert (lease["queue"], lease["start"], lease["next"], lease["delivery"]) == ("local:0", 0, 2, 1)
    assert lease["leasedUntil"] == "2026-01-01T12:00:30.000Z"
    assert received["state"] == "ok"
    assert received["acked"] == []
    first = received["messages"][0]
    assert "receipt" not in first
    assert (first["topic"], first["queue"], first["offset"], first["delivery"]) == ("orders", "local:0", 0, 1)
    assert first["storedAt"] == "2026-01-01T12:00:00.000Z"


async def test_a_body_is_optional(shop: httpx.AsyncClient) -> None:
    """`curl -X POST …/receive` works."""
    await publish(shop, "a")

    answer = await shop.post(RECEIVE)

    assert answer.status_code == 200
    assert bodies(answer.json()) == ["a"]


async def test_only_what_happened_is_in_the_answer(shop: httpx.AsyncClient) -> None:
    """No lease, no registered, no expired unless there is one."""
    received = await receive(shop)

    assert received == {"messages": [], "acked": [], "state": "ok"}


async def test_an_ack_moves_the_group_on(shop: httpx.AsyncClient) -> None:
    """Ack, then the next batch starts right behind."""
    await publish(shop, "a", "b", "c")
    lease = (await receive(shop, max=2))["lease"]

    acked = await settle(shop, "ack", lease["receipt"])

    assert (acked.status_code, acked.json()) == (200, {"outcome": "applied"})
    assert bodies(await receive(shop)) == ["c"]


async def test_a_receive_may_carry_acks(shop: httpx.AsyncClient) -> None:
    """One round trip a batch; an outcome for each, in order, and a bad one never fails the receive."""
    await publish(shop, "a", "b")
    first = (await receive(shop, max=1))["lease"]["receipt"]

    received = await receive(shop, ack=[first, "forged", first])

    assert [each["outcome"] for each in received["acked"]] == ["applied", "invalid", "duplicate"]
    assert bodies(received) == ["b"]


async def test_busy_says_that_somebody_else_holds_the_backlog(shop: httpx.AsyncClient) -> None:
    """A client can tell a crowded topic from an empty one."""
    await publish(shop, "a")
    await receive(shop)

    assert await receive(shop) == {"messages": [], "acked": [], "state": "busy"}


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
async def test_a_queue_ages_also_while_nobody_asks(api: httpx.AsyncClient, clock: ManualClock, mode: str) -> None:
    """Who comes back after a while finds first what waited longest, not what came in a flood just now."""
    await put(api, "topics/orders", queues=2)
    await put(api, "groups/workers", topic="orders", mode=mode)
    wish = {"max": 1, **({"clientId": "ada"} if mode == "broadcast" else {})}
    await receive(api, **wish)
    await publish(api, "first", key="d")
    clock.advance(20)
    await lag(api, **({"clientId": "ada"} if mode == "broadcast" else {}))
    clock.advance(11)
    await publish(api, *map(str, range(50)), key="a")

    served = [(await receive(api, **wish))["lease"]["queue"] for _ in range(2)]

    assert served == ["local:0", "local:1"]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_every_outcome_has_its_status(shop: httpx.AsyncClient, clock: ManualClock, verb: str) -> None:
    """The table of semantics.md over HTTP: 200, 200, 409, 410, 400, each with the outcome beside the code."""
    await publish(shop, "a", "b", "c", "d")
    late = (await receive(shop, max=1))["lease"]["receipt"]
    clock.advance(30)
    late_answer = await settle(shop, verb, late)
    clock.advance(60)
    lost = (await receive(shop, max=1))["lease"]["receipt"]
    clock.advance(30)
    held = (await receive(shop, max=1))["lease"]["receipt"]

    lost_answer = await settle(shop, verb, lost)
    await shop.post("/v1/groups/workers/seek", json={"to": "earliest"})
    gone_answer = await settle(shop, verb, held)
    invalid_answer = await settle(shop, verb, "forged")

    assert late_answer.json()["outcome"] == "late_applied"
    refused(lost_answer, 409, "lease_lost", outcome="lost")
    refused(gone_answer, 410, "lease_gone", outcome="gone")
    refused(invalid_answer, 400, "invalid_receipt", outcome="invalid")


async def test_a_repeated_ack_or_nack_is_a_duplicate(shop: httpx.AsyncClient) -> None:
    """200, so that a client that retries is content."""
    await publish(shop, "a", "b")
    nacked = (await receive(shop, max=1))["lease"]["receipt"]
    await settle(shop, "nack", nacked)
    acked = (await receive(shop, max=1))["lease"]["receipt"]
    await settle(shop, "ack", acked)

    assert (await settle(shop, "ack", acked)).json() == {"outcome": "duplicate"}
    assert (await settle(shop, "nack", nacked)).json() == {"outcome": "duplicate"}
    refused(await settle(shop, "nack", acked), 409, "lease_lost")


async def test_several_receipts_are_answered_one_by_one(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """200 if all are done, else 207, index-aligned."""
    await put(shop, "topics/orders", queues=2)
    await publish(shop, "a", "b", "c", "d")
    receipts = [(await receive(shop, max=1))["lease"]["receipt"] for _ in range(2)]

    mixed = await shop.post("/v1/groups/workers/ack", json={"receipts": ["forged", receipts[0]]})
    whole = await shop.post("/v1/groups/workers/ack", json={"receipts": receipts})

    assert mixed.status_code == 207
    assert [each["outcome"] for each in mixed.json()["results"]] == ["invalid", "applied"]
    assert whole.status_code == 200
    assert [each["outcome"] for each in whole.json()["results"]] == ["duplicate", "applied"]


async def test_a_prefix_can_be_acked(shop: httpx.AsyncClient) -> None:
    """`through` commits up to and with that offset."""
    await publish(shop, *"abcd")
    lease = (await receive(shop))["lease"]

    acked = await settle(shop, "ack", lease["receipt"], through=1)

    assert acked.json() == {"outcome": "applied"}
    assert bodies(await receive(shop)) == ["c", "d"]


@pytest.mark.parametrize("through", [-1, 4, 1 << 80])
async def test_a_prefix_outside_the_batch_is_refused_and_nothing_changes(shop: httpx.AsyncClient, through: int) -> None:
    """The lease stays valid; nothing is skipped by a slip."""
    await publish(shop, *"abcdef")
    lease = (await receive(shop, max=4))["lease"]

    answer = await settle(shop, "ack", lease["receipt"], through=through)

    assert answer.status_code == 400
    assert (await lag(shop))["queues"][0]["committed"] == 0
    assert (await settle(shop, "ack", lease["receipt"])).json() == {"outcome": "applied"}


async def test_through_goes_with_one_receipt(shop: httpx.AsyncClient) -> None:
    """With several it would mean something else for each."""
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    answer = await shop.post("/v1/groups/workers/ack", json={"receipts": [receipt], "through": 0})

    refused(answer, 400, "invalid_value", field="through")


async def test_a_nack_redelivers_after_its_delay(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """Release with a delay: the same messages, counted, not before their time."""
    await publish(shop, "a")
    first = (await receive(shop))["lease"]

    nacked = await settle(shop, "nack", first["receipt"], delay="90s", reason="not yet")
    clock.advance(89.999)
    early = await receive(shop)
    clock.advance(0.001)
    again = await receive(shop)

    assert nacked.json() == {"outcome": "applied"}
    assert early["state"] == "busy"
    assert bodies(again) == ["a"]
    assert again["lease"]["delivery"] == again["messages"][0]["delivery"] == 2


async def test_an_extend_counts_from_now(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The new end is in the answer, and holds."""
    await publish(shop, "a")
    lease = (await receive(shop))["lease"]
    clock.advance(20)

    extended = await settle(shop, "extend", lease["receipt"], visibility="5m")
    by_default = await settle(shop, "extend", lease["receipt"])

    assert extended.json() == {"outcome": "applied", "leasedUntil": "2026-01-01T12:05:20.000Z"}
    assert by_default.json() == {"outcome": "applied", "leasedUntil": "2026-01-01T12:00:50.000Z"}


async def test_an_extend_beyond_twelve_hours_in_all_is_refused(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """400 and untouched, whether alone or among others."""
    await publish(shop, "a")
    lease = (await receive(shop, visibility="12h"))["lease"]
    clock.advance(1)

    alone = await settle(shop, "extend", lease["receipt"], visibility="12h")
    among = await shop.post("/v1/groups/workers/extend", json={"receipts": [lease["receipt"]], "visibility": "12h"})

    refused(alone, 400, "invalid_value", field="visibility", outcome="invalid")
    assert among.status_code == 207
    assert (await settle(shop, "ack", lease["receipt"])).json() == {"outcome": "applied"}


async def test_an_attempt_can_be_repeated(shop: httpx.AsyncClient) -> None:
    """The same messages and the very same receipt; with other parameters 409."""
    await publish(shop, "a", "b")
    first = await receive(shop, attemptId="t1", max=1)

    again = await receive(shop, attemptId="t1", max=1)
    other = await shop.post(RECEIVE, json={"attemptId": "t1", "max": 2})

    assert again == first
    refused(other, 409, "attempt_mismatch", attemptId="t1")


async def test_visibility_may_be_the_requests_own(shop: httpx.AsyncClient) -> None:
    """Seconds or text, 1 s to 12 h."""
    await publish(shop, "a")

    received = await receive(shop, visibility=90)

    assert received["lease"]["leasedUntil"] == "2026-01-01T12:01:30.000Z"


async def test_an_answer_has_a_size_and_a_large_message_still_comes(open_api: OpenApi) -> None:
    """A batch is cut at max_answer_bytes, a message never; what was cut off comes next."""
    api = await open_api(max_answer_bytes=100)
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/workers", topic="orders", mode="queue")
    await publish(api, "x" * 500, "y" * 60, "z" * 60)

    batches = []
    for _ in range(3):
        received = await receive(api)
        batches.append([len(body) for body in bodies(received)])
        lease = received["lease"]
        assert lease["next"] - lease["start"] == len(received["messages"])
        await settle(api, "ack", lease["receipt"])

    assert batches == [[500], [60], [60]]


async def test_what_retention_took_is_reported(api: httpx.AsyncClient, gateway: Any, clock: ManualClock) -> None:
    """`expired: n`, once: a consumer knows that it missed something."""
    await put(api, "topics/orders", queues=1, retention="1h")
    await put(api, "groups/workers", topic="orders", mode="queue")
    await publish(api, "a", "b")
    clock.advance(timedelta(hours=2))
    await publish(api, "c")
    await gateway.janitor.run_once()

    first = await receive(api, max=1)
    await settle(api, "ack", first["lease"]["receipt"])

    assert (first["expired"], bodies(first)) == (2, ["c"])
    assert "expired" not in await receive(api)
    assert (await lag(api))["queues"][0]["expired"] == 2


@pytest.mark.parametrize("mode", ["queue", "message"])
async def test_what_retention_took_from_under_a_lease_is_expired_though_it_was_to_die(
    api: httpx.AsyncClient, gateway: Any, clock: ManualClock, mode: str
) -> None:
    """No body is left for a dead letter; but every message is accounted for."""
    await put(api, "topics/orders", queues=1, retention="1h")
    await put(api, "groups/workers", topic="orders", mode=mode, maxAttempts=1, visibility="12h")
    await publish(api, *"abcd")
    held = await receive(api, max=1)
    clock.advance(timedelta(hours=2))
    await gateway.janitor.run_once()

    nacked = await settle(api, "nack", (held.get("lease") or held["messages"][0])["receipt"])
    told = (await receive(api))["expired"]

    assert nacked.json() == {"outcome": "applied"}
    assert (await api.get("/v1/groups/workers/dead-letters")).json()["items"] == []
    assert (told, (await lag(api))["queues"][0]["expired"]) == (4, 4)


async def test_a_broadcast_client_is_registered_at_the_end_and_told_so(shop: httpx.AsyncClient) -> None:
    """First contact: nothing old comes, and the client knows that it starts now."""
    await put(shop, "groups/all", topic="orders", mode="broadcast")
    await publish(shop, "before")

    first = await receive(shop, "all", clientId="ada")
    await publish(shop, "after")
    second = await receive(shop, "all", clientId="ada")

    assert (first["registered"], first["messages"]) == (True, [])
    assert "registered" not in second
    assert bodies(second) == ["after"]


async def test_every_broadcast_client_gets_every_message(shop: httpx.AsyncClient) -> None:
    """And acks only for itself."""
    await put(shop, "groups/all", topic="orders", mode="broadcast", start="earliest")
    await publish(shop, "a", "b")

    adas = await receive(shop, "all", clientId="ada")
    await settle(shop, "ack", adas["lease"]["receipt"], "all")
    bens = await receive(shop, "all", clientId="ben")

    assert bodies(adas) == bodies(bens) == ["a", "b"]
    assert (await lag(shop, "all", clientId="ada"))["lag"] == 0
    assert (await lag(shop, "all", clientId="ben"))["lag"] == 2


async def test_a_broadcast_client_carries_no_ack_of_anothers(shop: httpx.AsyncClient) -> None:
    """Whoever comes by another client's receipt does not move its place with its own receive."""
    await put(shop, "groups/all", topic="orders", mode="broadcast", start="earliest")
    await publish(shop, "a")
    receipt = (await receive(shop, "all", clientId="ada"))["lease"]["receipt"]

    bens = await receive(shop, "all", clientId="ben", ack=[receipt])

    assert bens["acked"] == [{"outcome": "invalid"}]
    assert (await lag(shop, "all", clientId="ada"))["lag"] == 1
    assert (await receive(shop, "all", clientId="ada", ack=[receipt]))["acked"] == [{"outcome": "applied"}]


async def test_a_client_forgotten_is_registered_anew(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """Never a silent jump: registered says that what lay between is skipped."""
    await put(shop, "groups/all", topic="orders", mode="broadcast", clientTtl="1h")
    await receive(shop, "all", clientId="ada")
    await publish(shop, "missed")
    clock.advance(timedelta(hours=1))

    back = await receive(shop, "all", clientId="ada")

    assert (back["registered"], back["messages"]) == (True, [])


async def test_broadcast_needs_a_client_id(shop: httpx.AsyncClient) -> None:
    """Without a name there is no place to keep."""
    await put(shop, "groups/all", topic="orders", mode="broadcast")

    refused(await shop.post("/v1/groups/all/receive"), 400, "invalid_value", field="clientId")
    refused(await shop.get("/v1/groups/all/lag"), 400, "invalid_value", field="clientId")


async def test_too_many_broadcast_clients_are_refused(open_api: OpenApi) -> None:
    """429 with Retry-After; those who are there go on."""
    api = await open_api({"group_defaults": GroupSettings(max_clients=2)})
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/all", topic="orders", mode="broadcast")
    for client in ("ada", "ben"):
        await receive(api, "all", clientId=client)

    answer = await api.post("/v1/groups/all/receive", json={"clientId": "eve"})

    refused(answer, 429, "too_many_clients", limit=2)
    assert (await receive(api, "all", clientId="ada"))["state"] == "ok"


async def test_receipts_of_another_group_are_invalid(shop: httpx.AsyncClient) -> None:
    """Foreign is treated as forged: nothing changes in either group."""
    await put(shop, "groups/others", topic="orders", mode="queue")
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    for verb in ("ack", "nack", "extend"):
        refused(await settle(shop, verb, receipt, "others"), 400, "invalid_receipt", outcome="invalid")

    carried = await receive(shop, "others", ack=[receipt])
    assert [each["outcome"] for each in carried["acked"]] == ["invalid"]
    assert (await settle(shop, "ack", receipt)).json() == {"outcome": "applied"}


async def test_a_receipt_changed_anywhere_is_invalid(shop: httpx.AsyncClient) -> None:
    """Signed: no character can be turned into another right."""
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    for place in range(len(receipt) - 1):
        changed = receipt[:place] + ("A" if receipt[place] != "A" else "B") + receipt[place + 1 :]
        refused(await settle(shop, "ack", changed), 400, "invalid_receipt")

    assert (await settle(shop, "ack", receipt)).json() == {"outcome": "applied"}


@pytest.mark.parametrize("receipt", ["", " ", "=", "é", "AAAA", "A" * 5_000, "\x00", "💥", "../../etc", "-_" * 40])
async def test_a_malformed_receipt_is_invalid_never_a_failure(shop: httpx.AsyncClient, receipt: str) -> None:
    """Whatever text comes, it is answered 400."""
    refused(await settle(shop, "ack", receipt), 400, "invalid_receipt", outcome="invalid")


async def test_receipts_survive_a_restart(settings: Settings, clock: ManualClock) -> None:
    """A gateway killed between two requests of a client changes no outcome."""
    async with bootstrap.gateway(settings, wall_ms=clock) as gateway, client_of(gateway) as api:
        await put(api, "topics/orders", queues=1)
        await put(api, "groups/workers", topic="orders", mode="queue")
        await publish(api, "a", "b")
        receipt = (await receive(api, max=1))["lease"]["receipt"]

    async with bootstrap.gateway(settings, wall_ms=clock) as gateway, client_of(gateway) as api:
        held = await receive(api)
        acked = await settle(api, "ack", receipt)
        following = await receive(api)

    assert held["state"] == "busy"
    assert acked.json() == {"outcome": "applied"}
    assert bodies(following) == ["b"]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"receipt": "a", "receipts": ["b"]},
        {"receipts": []},
        {"receipts": ["x"] * 1_001},
        {"receipt": 1},
        {"receipt": None},
        {"receipts": "x"},
        {"receipts": [None]},
    ],
)
async def test_a_settlement_names_one_receipt_or_some(
    shop: httpx.AsyncClient, verb: str, given: dict[str, object]
) -> None:
    """One way to say it; the other ways are refused."""
    refused(await shop.post(f"/v1/groups/workers/{verb}", json=given), 400, "invalid_value")


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"max": 0}, "max"),
        ({"max": -1}, "max"),
        ({"max": 1_001}, "max"),
        ({"max": 1 << 70}, "max"),
        ({"max": "10"}, "max"),
        ({"max": None}, "max"),
        ({"max": 1.5}, "max"),
        ({"wait": -1}, "wait"),
        ({"wait": -0.001}, "wait"),
        ({"wait": 60.001}, "wait"),
        ({"wait": "61s"}, "wait"),
        ({"wait": "soon"}, "wait"),
        ({"wait": "1.5s"}, "wait"),
        ({"wait": "-1s"}, "wait"),
        ({"wait": True}, "wait"),
        ({"wait": 1e308}, "wait"),
        ({"visibility": 0.999}, "visibility"),
        ({"visibility": "43201s"}, "visibility"),
        ({"visibility": -5}, "visibility"),
        ({"clientId": ""}, "clientId"),
        ({"clientId": "x" * 129}, "clientId"),
        ({"clientId": "a\nb"}, "clientId"),
        ({"clientId": 7}, "clientId"),
        ({"attemptId": ""}, "attemptId"),
        ({"attemptId": "x" * 129}, "attemptId"),
        ({"ack": "receipt"}, "ack"),
        ({"ack": ["x"] * 1_001}, "ack"),
        ({"ack": [1]}, None),
    ],
)
async def test_a_bad_wish_is_refused_by_name(
    shop: httpx.AsyncClient, wish: dict[str, object], field: str | None
) -> None:
    """400, the member, and no lease is taken."""
    await publish(shop, "a")

    problem = refused(await shop.post(RECEIVE, json=wish), 400, "invalid_value")

    assert field is None or problem["field"] == field
    assert (await lag(shop))["leased"] == 0


@pytest.mark.parametrize(
    ("verb", "more", "field"),
    [
        ("nack", {"delay": -1}, "delay"),
        ("nack", {"delay": "13h"}, "delay"),
        ("nack", {"delay": "later"}, "delay"),
        ("nack", {"reason": "x" * 1_001}, "reason"),
        ("nack", {"reason": 1}, "reason"),
        ("extend", {"visibility": 0}, "visibility"),
        ("extend", {"visibility": "13h"}, "visibility"),
        ("ack", {"through": "1"}, "through"),
        ("ack", {"through": 1.5}, "through"),
    ],
)
async def test_a_bad_settlement_is_refused_by_name_and_changes_nothing(
    shop: httpx.AsyncClient, verb: str, more: dict[str, object], field: str
) -> None:
    """Refused means untouched: the lease is still there to be acked."""
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    answer = await settle(shop, verb, receipt, **more)

    refused(answer, 400, "invalid_value", field=field)
    assert (await settle(shop, "ack", receipt)).json() == {"outcome": "applied"}


@pytest.mark.parametrize("call", ["receive", "ack", "nack", "extend", "seek", "pause", "resume"])
async def test_a_group_that_is_not_there_is_refused(api: httpx.AsyncClient, call: str) -> None:
    """404, whatever the body would have been."""
    body = {"seek": {"to": "latest"}, "receive": {}, "pause": {}, "resume": {}}.get(call, {"receipt": "x"})

    refused(await api.post(f"/v1/groups/nobody/{call}", json=body), 404, "group_not_found", group="nobody")
