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


async def test_a_batch_has_one_lease(shop: httpx.AsyncClient) -> None:
    """In queue mode the lease has queue, range, end and delivery count. Messages have no receipts."""
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
    """`curl -X POST` without a body works."""
    await publish(shop, "a")

    response = await shop.post(RECEIVE)

    assert response.status_code == 200
    assert bodies(response.json()) == ["a"]


async def test_optional_members_are_omitted_from_the_response(shop: httpx.AsyncClient) -> None:
    """There is no lease, registered or expired member without a reason."""
    received = await receive(shop)

    assert received == {"messages": [], "acked": [], "state": "ok"}


async def test_an_ack_advances_the_group(shop: httpx.AsyncClient) -> None:
    """The next batch starts after the acknowledged one."""
    await publish(shop, "a", "b", "c")
    lease = (await receive(shop, max=2))["lease"]

    acked = await settle(shop, "ack", lease["receipt"])

    assert (acked.status_code, acked.json()) == (200, {"outcome": "applied"})
    assert bodies(await receive(shop)) == ["c"]


async def test_a_receive_can_carry_acks(shop: httpx.AsyncClient) -> None:
    """It saves a request per batch. Outcomes are in order, and an invalid receipt does not fail the receive."""
    await publish(shop, "a", "b")
    first = (await receive(shop, max=1))["lease"]["receipt"]

    received = await receive(shop, ack=[first, "forged", first])

    assert [result["outcome"] for result in received["acked"]] == ["applied", "invalid", "duplicate"]
    assert bodies(received) == ["b"]


async def test_state_busy_means_that_others_hold_the_backlog(shop: httpx.AsyncClient) -> None:
    """A client can distinguish it from an empty topic."""
    await publish(shop, "a")
    await receive(shop)

    assert await receive(shop) == {"messages": [], "acked": [], "state": "busy"}


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
async def test_a_queue_ages_without_receives(api: httpx.AsyncClient, clock: ManualClock, mode: str) -> None:
    """After a pause the longest waiting queue is delivered first, not the fullest."""
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
async def test_every_outcome_has_its_http_status(shop: httpx.AsyncClient, clock: ManualClock, verb: str) -> None:
    """This is the table of semantics.md: 200, 200, 409, 410 and 400, each with its outcome."""
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
    """The status is 200, so that a client can retry safely."""
    await publish(shop, "a", "b")
    nacked = (await receive(shop, max=1))["lease"]["receipt"]
    await settle(shop, "nack", nacked)
    acked = (await receive(shop, max=1))["lease"]["receipt"]
    await settle(shop, "ack", acked)

    assert (await settle(shop, "ack", acked)).json() == {"outcome": "duplicate"}
    assert (await settle(shop, "nack", nacked)).json() == {"outcome": "duplicate"}
    refused(await settle(shop, "nack", acked), 409, "lease_lost")


async def test_several_receipts_return_one_outcome_each(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The status is 200 if all are applied, otherwise 207."""
    await put(shop, "topics/orders", queues=2)
    await publish(shop, "a", "b", "c", "d")
    receipts = [(await receive(shop, max=1))["lease"]["receipt"] for _ in range(2)]

    mixed = await shop.post("/v1/groups/workers/ack", json={"receipts": ["forged", receipts[0]]})
    whole = await shop.post("/v1/groups/workers/ack", json={"receipts": receipts})

    assert mixed.status_code == 207
    assert [result["outcome"] for result in mixed.json()["results"]] == ["invalid", "applied"]
    assert whole.status_code == 200
    assert [result["outcome"] for result in whole.json()["results"]] == ["duplicate", "applied"]


async def test_a_prefix_can_be_acked(shop: httpx.AsyncClient) -> None:
    """`through` commits up to and including that offset."""
    await publish(shop, *"abcd")
    lease = (await receive(shop))["lease"]

    acked = await settle(shop, "ack", lease["receipt"], through=1)

    assert acked.json() == {"outcome": "applied"}
    assert bodies(await receive(shop)) == ["c", "d"]


@pytest.mark.parametrize("through", [-1, 4, 1 << 80])
async def test_a_prefix_outside_the_batch_is_refused_and_nothing_changes(shop: httpx.AsyncClient, through: int) -> None:
    """The lease stays valid, and no message is skipped."""
    await publish(shop, *"abcdef")
    lease = (await receive(shop, max=4))["lease"]

    response = await settle(shop, "ack", lease["receipt"], through=through)

    assert response.status_code == 400
    assert (await lag(shop))["queues"][0]["committed"] == 0
    assert (await settle(shop, "ack", lease["receipt"])).json() == {"outcome": "applied"}


async def test_through_requires_a_single_receipt(shop: httpx.AsyncClient) -> None:
    """It has no defined meaning for several."""
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    response = await shop.post("/v1/groups/workers/ack", json={"receipts": [receipt], "through": 0})

    refused(response, 400, "invalid_value", field="through")


async def test_a_nack_redelivers_after_its_delay(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The same messages are delivered again, counted, and not before the delay."""
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
    """The response contains the new end of the lease, and the lease lasts until then."""
    await publish(shop, "a")
    lease = (await receive(shop))["lease"]
    clock.advance(20)

    extended = await settle(shop, "extend", lease["receipt"], visibility="5m")
    by_default = await settle(shop, "extend", lease["receipt"])

    assert extended.json() == {"outcome": "applied", "leasedUntil": "2026-01-01T12:05:20.000Z"}
    assert by_default.json() == {"outcome": "applied", "leasedUntil": "2026-01-01T12:00:50.000Z"}


async def test_an_extend_over_twelve_hours_in_total_is_refused(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The response is 400 and the lease is unchanged, for one or several receipts."""
    await publish(shop, "a")
    lease = (await receive(shop, visibility="12h"))["lease"]
    clock.advance(1)

    alone = await settle(shop, "extend", lease["receipt"], visibility="12h")
    among = await shop.post("/v1/groups/workers/extend", json={"receipts": [lease["receipt"]], "visibility": "12h"})

    refused(alone, 400, "invalid_value", field="visibility", outcome="invalid")
    assert among.status_code == 207
    assert (await settle(shop, "ack", lease["receipt"])).json() == {"outcome": "applied"}


async def test_an_attempt_can_be_repeated(shop: httpx.AsyncClient) -> None:
    """The same messages and receipt are returned. Other parameters are refused with 409."""
    await publish(shop, "a", "b")
    first = await receive(shop, attemptId="t1", max=1)

    again = await receive(shop, attemptId="t1", max=1)
    other = await shop.post(RECEIVE, json={"attemptId": "t1", "max": 2})

    assert again == first
    refused(other, 409, "attempt_mismatch", attemptId="t1")


async def test_a_receive_can_set_its_visibility(shop: httpx.AsyncClient) -> None:
    """It is a number of seconds or text, from 1 s to 12 h."""
    await publish(shop, "a")

    received = await receive(shop, visibility=90)

    assert received["lease"]["leasedUntil"] == "2026-01-01T12:01:30.000Z"


async def test_a_response_has_a_maximum_size_but_at_least_one_message(open_api: OpenApi) -> None:
    """A batch ends at max_answer_bytes. The next receive returns the rest."""
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


async def test_messages_deleted_by_retention_are_reported_once(
    api: httpx.AsyncClient, gateway: Any, clock: ManualClock
) -> None:
    """`expired: n` shows the consumer that it missed messages."""
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
async def test_an_exhausted_message_deleted_by_retention_is_expired(
    api: httpx.AsyncClient, gateway: Any, clock: ManualClock, mode: str
) -> None:
    """It has no body for a dead letter, but every message is accounted for."""
    await put(api, "topics/orders", queues=1, retention="1h")
    await put(api, "groups/workers", topic="orders", mode=mode, maxAttempts=1, visibility="12h")
    await publish(api, *"abcd")
    held = await receive(api, max=1)
    clock.advance(timedelta(hours=2))
    await gateway.janitor.run_once()

    nacked = await settle(api, "nack", (held.get("lease") or held["messages"][0])["receipt"])
    expired = (await receive(api))["expired"]

    assert nacked.json() == {"outcome": "applied"}
    assert (await api.get("/v1/groups/workers/dead-letters")).json()["items"] == []
    assert (expired, (await lag(api))["queues"][0]["expired"]) == (4, 4)


async def test_a_new_broadcast_client_starts_at_the_end(shop: httpx.AsyncClient) -> None:
    """`registered` tells the client that earlier messages are not delivered."""
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


async def test_a_broadcast_client_cannot_ack_for_another(shop: httpx.AsyncClient) -> None:
    """A receipt of another client in a receive changes nothing."""
    await put(shop, "groups/all", topic="orders", mode="broadcast", start="earliest")
    await publish(shop, "a")
    receipt = (await receive(shop, "all", clientId="ada"))["lease"]["receipt"]

    bens = await receive(shop, "all", clientId="ben", ack=[receipt])

    assert bens["acked"] == [{"outcome": "invalid"}]
    assert (await lag(shop, "all", clientId="ada"))["lag"] == 1
    assert (await receive(shop, "all", clientId="ada", ack=[receipt]))["acked"] == [{"outcome": "applied"}]


async def test_an_expired_client_is_registered_again(shop: httpx.AsyncClient, clock: ManualClock) -> None:
    """The notice `registered` reports that messages were skipped."""
    await put(shop, "groups/all", topic="orders", mode="broadcast", clientTtl="1h")
    await receive(shop, "all", clientId="ada")
    await publish(shop, "missed")
    clock.advance(timedelta(hours=1))

    back = await receive(shop, "all", clientId="ada")

    assert (back["registered"], back["messages"]) == (True, [])


async def test_broadcast_groups_require_a_client_id(shop: httpx.AsyncClient) -> None:
    """Offsets are stored per client."""
    await put(shop, "groups/all", topic="orders", mode="broadcast")

    refused(await shop.post("/v1/groups/all/receive"), 400, "invalid_value", field="clientId")
    refused(await shop.get("/v1/groups/all/lag"), 400, "invalid_value", field="clientId")


async def test_too_many_broadcast_clients_are_refused(open_api: OpenApi) -> None:
    """The response is 429 with Retry-After. Existing clients continue."""
    api = await open_api({"group_defaults": GroupSettings(max_clients=2)})
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/all", topic="orders", mode="broadcast")
    for client in ("ada", "ben"):
        await receive(api, "all", clientId=client)

    response = await api.post("/v1/groups/all/receive", json={"clientId": "eve"})

    refused(response, 429, "too_many_clients", limit=2)
    assert (await receive(api, "all", clientId="ada"))["state"] == "ok"


async def test_receipts_of_another_group_are_invalid(shop: httpx.AsyncClient) -> None:
    """They are treated like forged ones, and neither group changes."""
    await put(shop, "groups/others", topic="orders", mode="queue")
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    for verb in ("ack", "nack", "extend"):
        refused(await settle(shop, verb, receipt, "others"), 400, "invalid_receipt", outcome="invalid")

    carried = await receive(shop, "others", ack=[receipt])
    assert [result["outcome"] for result in carried["acked"]] == ["invalid"]
    assert (await settle(shop, "ack", receipt)).json() == {"outcome": "applied"}


async def test_a_modified_receipt_is_invalid(shop: httpx.AsyncClient) -> None:
    """Receipts are signed."""
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    for place in range(len(receipt) - 1):
        changed = receipt[:place] + ("A" if receipt[place] != "A" else "B") + receipt[place + 1 :]
        refused(await settle(shop, "ack", changed), 400, "invalid_receipt")

    assert (await settle(shop, "ack", receipt)).json() == {"outcome": "applied"}


@pytest.mark.parametrize("receipt", ["", " ", "=", "é", "AAAA", "A" * 5_000, "\x00", "💥", "../../etc", "-_" * 40])
async def test_a_malformed_receipt_is_invalid(shop: httpx.AsyncClient, receipt: str) -> None:
    """Any text is answered with 400, never with a 500."""
    refused(await settle(shop, "ack", receipt), 400, "invalid_receipt", outcome="invalid")


async def test_receipts_survive_a_restart(settings: Settings, clock: ManualClock) -> None:
    """A restart between two requests of a client changes no outcome."""
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
async def test_a_settlement_takes_either_receipt_or_receipts(
    shop: httpx.AsyncClient, verb: str, given: dict[str, object]
) -> None:
    """Both or neither are refused."""
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
async def test_an_invalid_receive_is_refused_with_the_member(
    shop: httpx.AsyncClient, wish: dict[str, object], field: str | None
) -> None:
    """The response is 400, and no lease is granted."""
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
async def test_an_invalid_settlement_is_refused_and_changes_nothing(
    shop: httpx.AsyncClient, verb: str, more: dict[str, object], field: str
) -> None:
    """The lease can still be acknowledged."""
    await publish(shop, "a")
    receipt = (await receive(shop))["lease"]["receipt"]

    response = await settle(shop, verb, receipt, **more)

    refused(response, 400, "invalid_value", field=field)
    assert (await settle(shop, "ack", receipt)).json() == {"outcome": "applied"}


@pytest.mark.parametrize("call", ["receive", "ack", "nack", "extend", "seek", "pause", "resume"])
async def test_a_group_that_is_not_there_is_refused(api: httpx.AsyncClient, call: str) -> None:
    """404, whatever the body would have been."""
    body = {"seek": {"to": "latest"}, "receive": {}, "pause": {}, "resume": {}}.get(call, {"receipt": "x"})

    refused(await api.post(f"/v1/groups/nobody/{call}", json=body), 404, "group_not_found", group="nobody")
