"""/mq/consumer/config and unregister, with an MU header."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mq_calls import Mq
from mu_headers import KEY, configure, encrypt_mu_header

from mqgate.settings import MqSettings, Settings, SqliteSettings
from mqgate.testing.clock import NOON, ManualClock

NOON_MS = int(NOON.timestamp() * 1000)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=timedelta(hours=1)),
        mq=MqSettings(cipher_key=KEY),
    )


async def test_settings_changes_are_audited_with_the_mu_address(mq: Mq) -> None:
    """The original only logs the address."""
    response = await configure(mq, consumeTimeoutInMillis=60_000, limitRate="2.5", pause=1, unknown=1)

    assert response == {"status": 200}
    config = (await mq.get("config/C"))["result"]
    assert (config["consumeTimeoutInMillis"], config["limitRate"], config["pause"]) == (60_000, 2.5, True)
    acts = (await mq.http.get("/v1/audit")).json()["items"]
    assert {act["actor"] for act in acts[:2]} == {"mq ann@example.com"}


async def test_the_rate_limiter_has_one_switch(mq: Mq) -> None:
    """Off removes the rate. On without a rate sets the default of the dialect."""
    seen = []
    for change in ({"rateLimitEnabled": 1}, {"limitRate": 5, "rateLimitEnabled": 0}, {"limitRate": 7}):
        await configure(mq, **change)
        config = (await mq.get("config/C"))["result"]
        seen.append((config["rateLimiterEnabled"], config["limitRate"]))

    assert seen == [(True, 1024.0), (False, 1024.0), (True, 7.0)]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"consumer": " "}, 400),
        ({"consumer": "nobody"}, 500),
        ({"maxPullSize": 0}, 400),
        ({"maxPullSize": 64}, 400),
        ({"pullTimeoutInMillis": 5_000}, 400),
        ({"consumeTimeoutInMillis": 9_999}, 400),
        ({"consumeTimeoutInMillis": 129_600_000}, 400),
        ({"pause": 2}, 400),
        ({"limitRate": 0.5}, 400),
        ({"resetOffsetTimestamp": -1}, 400),
        ({"resetOffsetTimestamp": 10**15}, 400),
        ({"retryMsgId": "none"}, 500),
    ],
)
async def test_a_refused_change_changes_nothing(mq: Mq, change: dict[str, Any], status: int) -> None:
    """A valid member beside an invalid one is not applied either."""
    response = await configure(mq, **{"rateLimitEnabled": 1, **change})

    assert response["status"] == status
    assert (await mq.get("config/C"))["result"]["rateLimiterEnabled"] is False


@pytest.mark.parametrize("body", [b"", b"{", b"consumer=C", b'{"consumer": "\xff"}'])
async def test_invalid_json_returns_status_500(mq: Mq, body: bytes) -> None:
    """The dialect returns 400 for invalid members and 500 for invalid JSON."""
    headers = {"MU": encrypt_mu_header("ann@example.com")}

    response = await mq.call("POST", "consumer/config", content=body, headers=headers)

    assert response["status"] == 500
    assert response["message"].startswith("the body must be JSON")


async def test_resetting_by_time_repeats_what_was_stored_since(mq: Mq, clock: ManualClock) -> None:
    """The dialect's seek: consumers get everything from that instant again, and it is on record."""
    await mq.produce("old", orderId="same")
    clock.advance(10)
    await mq.produce("new", orderId="same")
    await mq.get("ack", topic="T", consumer="C", requestId=(await mq.fetch())["requestId"])

    await configure(mq, resetOffsetTimestamp=NOON_MS + 5_000)

    assert [message["message"] for message in (await mq.fetch())["msgList"]] == ["new"]
    acts = (await mq.http.get("/v1/audit")).json()["items"]
    assert acts[0]["action"] == "seek"


async def test_a_reset_wakes_parked_receives(mq: Mq) -> None:
    """A long poll of the same group must receive the messages that the reset made ready."""
    await mq.produce("m")
    await mq.get("ack", topic="T", consumer="C", requestId=(await mq.fetch())["requestId"])
    waiting = asyncio.ensure_future(mq.http.post("/v1/groups/C/receive", json={"wait": 60}))
    while "mqgate_parked_requests 1.0" not in (await mq.http.get("/metrics")).text:
        assert not waiting.done()
        await asyncio.sleep(0.01)

    await configure(mq, resetOffsetTimestamp=0)

    response = await asyncio.wait_for(waiting, 10)
    assert [message["body"] for message in response.json()["messages"]] == ["m"]


async def test_resetting_a_broadcast_consumer_moves_the_named_client_or_all(mq: Mq) -> None:
    """An operator can move one client without the others. An unknown name moves no client."""
    for client in ("one", "two"):
        await mq.fetch(consumer="B", clientId=client)
    await mq.produce("m")
    for client in ("one", "two"):
        taken = await mq.fetch(consumer="B", clientId=client)
        await mq.fetch(consumer="B", clientId=client, requestId=taken["requestId"])

    async def reset(**body: Any) -> list[int]:
        await configure(mq, consumer="B", resetOffsetTimestamp=0, **body)
        found = [await mq.fetch(consumer="B", clientId=client) for client in ("one", "two")]
        for client, result in zip(("one", "two"), found, strict=True):
            await mq.fetch(consumer="B", clientId=client, requestId=result.get("requestId", ""))
        return [result["msgListSize"] for result in found]

    assert await reset(clientId="three", pause=1) == [0, 0]
    assert (await mq.get("config/B"))["result"]["pause"] is False
    assert await reset(clientId="two") == [0, 1]
    assert await reset() == [1, 1]


async def test_a_resent_message_is_delivered_once_with_the_next_batch(mq: Mq) -> None:
    """RetryMsgId resends one message without moving the offsets."""
    sent = await mq.produce("look again")
    await mq.get("ack", topic="T", consumer="C", requestId=(await mq.fetch())["requestId"])

    await configure(mq, retryMsgId=sent["msgId"])
    first, second = await mq.fetch(), await mq.fetch()

    assert (first["status"], first["retryMsgListSize"]) == ("NO_NEW_MSG", 1)
    assert first["retryMsgList"][0]["messageId"] == sent["msgId"]
    assert second["retryMsgListSize"] == 0


@pytest.mark.parametrize("path", ["consumer/unregister", "unregister"])
async def test_unregister_stops_a_consumer_and_can_be_undone(mq: Mq, path: str) -> None:
    """Its offsets are kept, so that a resume continues at its position."""
    headers = {"MU": encrypt_mu_header("ann@example.com")}
    await mq.produce("m")

    assert await mq.call("POST", f"{path}?consumer=C", headers=headers) == {"status": 200}

    assert (await mq.fetch())["status"] == "PAUSED"
    await configure(mq, pause=0)
    assert (await mq.fetch())["msgListSize"] == 1


@pytest.mark.parametrize(("query", "status"), [("?consumer=nobody", 400), ("", 500)])
async def test_unregistering_an_unknown_consumer_is_refused(mq: Mq, query: str, status: int) -> None:
    """The dialect returns 400 for an unknown consumer and 500 for a missing parameter."""
    headers = {"MU": encrypt_mu_header("ann@example.com")}

    assert (await mq.call("POST", f"unregister{query}", headers=headers))["status"] == status
