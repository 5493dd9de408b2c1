"""/mq/consumer/config and unregister, for who wears a badge."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mq_badge import KEY, configure, sealed
from mq_surface import Mq

from mqgate.settings import MqSettings, Settings, SqliteSettings
from mqgate.testing.clock import NOON, ManualClock

NOON_MS = int(NOON.timestamp() * 1000)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=timedelta(hours=1)),
        mq=MqSettings(cipher_key=KEY),
    )


async def test_settings_are_changed_and_audited_under_the_badges_name(mq: Mq) -> None:
    """The original only logs the address; here the registry keeps who did it."""
    answer = await configure(mq, consumeTimeoutInMillis=60_000, limitRate="2.5", pause=1, unknown=1)

    assert answer == {"status": 200}
    config = (await mq.get("config/C"))["result"]
    assert (config["consumeTimeoutInMillis"], config["limitRate"], config["pause"]) == (60_000, 2.5, True)
    acts = (await mq.http.get("/v1/audit")).json()["items"]
    assert {act["actor"] for act in acts[:2]} == {"mq ann@example.com"}


async def test_the_limiter_has_one_switch(mq: Mq) -> None:
    """Off forgets the rate, on without one takes the dialect's own: what is shown is what is enforced."""
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
    """What we do not honour is not accepted, and a good member beside a bad one is not applied either."""
    answer = await configure(mq, **{"rateLimitEnabled": 1, **change})

    assert answer["status"] == status
    assert (await mq.get("config/C"))["result"]["rateLimiterEnabled"] is False


@pytest.mark.parametrize("body", [b"", b"{", b"consumer=C", b'{"consumer": "\xff"}'])
async def test_a_body_that_is_no_json_is_a_server_error(mq: Mq, body: bytes) -> None:
    """As the dialect has it: bad members are 400, bad JSON is 500."""
    headers = {"MU": sealed("ann@example.com")}

    answer = await mq.call("POST", "consumer/config", content=body, headers=headers)

    assert answer["status"] == 500
    assert answer["message"].startswith("the body must be JSON")


async def test_resetting_by_time_repeats_what_was_stored_since(mq: Mq, clock: ManualClock) -> None:
    """The dialect's seek: consumers get everything from that instant again, and it is on record."""
    await mq.produce("old", orderId="same")
    clock.advance(10)
    await mq.produce("new", orderId="same")
    await mq.get("ack", topic="T", consumer="C", requestId=(await mq.fetch())["requestId"])

    await configure(mq, resetOffsetTimestamp=NOON_MS + 5_000)

    assert [each["message"] for each in (await mq.fetch())["msgList"]] == ["new"]
    acts = (await mq.http.get("/v1/audit")).json()["items"]
    assert acts[0]["action"] == "seek"


async def test_a_reset_wakes_those_who_wait_for_messages(mq: Mq) -> None:
    """A consumer of the same group that long-polls /v1 must not sleep through what the reset made ready."""
    await mq.produce("m")
    await mq.get("ack", topic="T", consumer="C", requestId=(await mq.fetch())["requestId"])
    waiting = asyncio.ensure_future(mq.http.post("/v1/groups/C/receive", json={"wait": 60}))
    while "mqgate_parked_requests 1.0" not in (await mq.http.get("/metrics")).text:
        assert not waiting.done()
        await asyncio.sleep(0.01)

    await configure(mq, resetOffsetTimestamp=0)

    answer = await asyncio.wait_for(waiting, 10)
    assert [each["body"] for each in answer.json()["messages"]] == ["m"]


async def test_resetting_a_broadcast_consumer_moves_the_named_client_or_all(mq: Mq) -> None:
    """An operator helps one client without repeating everything to the others; a wrong name moves nobody."""
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


async def test_a_message_asked_for_again_comes_beside_the_batch_once(mq: Mq) -> None:
    """retryMsgId: an operator lets a consumer see one message once more, without moving its place."""
    sent = await mq.produce("look again")
    await mq.get("ack", topic="T", consumer="C", requestId=(await mq.fetch())["requestId"])

    await configure(mq, retryMsgId=sent["msgId"])
    first, second = await mq.fetch(), await mq.fetch()

    assert (first["status"], first["retryMsgListSize"]) == ("NO_NEW_MSG", 1)
    assert first["retryMsgList"][0]["messageId"] == sent["msgId"]
    assert second["retryMsgListSize"] == 0


@pytest.mark.parametrize("path", ["consumer/unregister", "unregister"])
async def test_unregister_stops_a_consumer_and_can_be_undone(mq: Mq, path: str) -> None:
    """Stopped, not deleted: its offsets stay, so that resuming it goes on where it was."""
    headers = {"MU": sealed("ann@example.com")}
    await mq.produce("m")

    assert await mq.call("POST", f"{path}?consumer=C", headers=headers) == {"status": 200}

    assert (await mq.fetch())["status"] == "PAUSED"
    await configure(mq, pause=0)
    assert (await mq.fetch())["msgListSize"] == 1


@pytest.mark.parametrize(("query", "status"), [("?consumer=nobody", 400), ("", 500)])
async def test_unregistering_nobody_is_refused(mq: Mq, query: str, status: int) -> None:
    """Here the dialect says 400 for a consumer that is not registered, and 500 for none named."""
    headers = {"MU": sealed("ann@example.com")}

    assert (await mq.call("POST", f"unregister{query}", headers=headers))["status"] == status
