"""/mq/ack, /mq/unlock, and acks that a fetch carries."""

import pytest
from mq_calls import Mq

from mqgate.testing.clock import ManualClock

FORGED = "YnJva2VyLWEsMCwxMDAsMTMyLDE3MDAwMDAwMDAwMDAsZmFsc2U="


@pytest.mark.parametrize("request_id", [FORGED, "x", "ü", "A" * 2_000])
async def test_a_forged_request_id_acks_nothing_and_never_fails_a_fetch(mq: Mq, request_id: str) -> None:
    """The original's requestId can be made by hand; ours is signed, a wrong one costs only its ack."""
    await mq.produce("m")
    illegal = {"status": 400, "message": "ack illegal: the requestId was not given to this consumer"}

    result = await mq.fetch(requestId=request_id)

    assert (result["status"], result["ackInfo"]) == ("FOUND", illegal)
    for path in ("ack", "unlock"):
        assert await mq.get(path, topic="T", consumer="C", requestId=request_id) == illegal


async def test_a_request_id_is_valid_for_its_own_consumer_only(mq: Mq) -> None:
    """A receipt must not move the offsets of another consumer or broadcast client."""
    await mq.register("groups/D", topic="T", mode="queue")
    for client in ("one", "two"):
        await mq.fetch(consumer="B", clientId=client)
    await mq.produce("m")
    mine = (await mq.fetch())["requestId"]
    of_one = (await mq.fetch(consumer="B", clientId="one"))["requestId"]

    foreign = await mq.get("ack", topic="T", consumer="D", requestId=mine)
    of_another = await mq.get("ack", topic="T", consumer="B", clientId="two", requestId=of_one)

    assert (foreign["status"], of_another["status"]) == (400, 400)
    own = await mq.get("ack", topic="T", consumer="B", clientId="one", requestId=of_one)
    assert own["message"].startswith("ok ")


async def test_only_an_ack_that_committed_begins_with_ok(mq: Mq, clock: ManualClock) -> None:
    """Both outcomes are 200, so a client distinguishes them by the beginning of the text."""
    await mq.produce("m")
    slow = (await mq.fetch())["requestId"]
    clock.advance(301)
    quick = (await mq.fetch())["requestId"]

    late = await mq.get("ack", topic="T", consumer="C", requestId=slow)
    done = await mq.post("ack", topic="T", consumer="C", requestId=quick)
    again = await mq.get("ack", topic="T", consumer="C", requestId=quick)
    await mq.http.post("/v1/groups/C/seek", json={"to": "earliest"})
    swept = (await mq.fetch())["requestId"]
    await mq.http.post("/v1/groups/C/seek", json={"to": "earliest"})
    gone = await mq.get("ack", topic="T", consumer="C", requestId=swept)

    assert late == {"status": 200, "message": "ack lockTime small than the current one local-0:0,1,1,false"}
    assert done == {"status": 200, "message": "ok local-0:0,1,2,false"}
    assert again == {"status": 200, "message": "offset has committed local-0:0,1,2,false"}
    assert gone["status"] == 200
    assert gone["message"].startswith("lock not exist local-0:0,1,")


async def test_an_ack_without_request_id_is_illegal(mq: Mq) -> None:
    """A client that has nothing to ack learns so; nothing changes."""
    response = await mq.get("ack", topic="T", consumer="C", requestId="")

    assert response == {"status": 400, "message": "ack illegal null-0:0,0,0,false"}


async def test_unlock_gives_the_batch_to_the_next_fetch_and_only_by_its_holder(mq: Mq) -> None:
    """Release without commit or delay; the original lets anybody unlock, here a spent receipt frees nothing."""
    await mq.register("groups/C", backoff=["60s"])
    await mq.produce("m")
    first = (await mq.fetch())["requestId"]

    freed = await mq.get("unlock", topic="T", consumer="C", requestId=first)
    second = await mq.fetch()
    repeated = await mq.get("unlock", topic="T", consumer="C", requestId=first)

    assert freed == {"status": 200, "message": "local-0:0,1,1,false unlock:true"}
    assert [message["message"] for message in second["msgList"]] == ["m"]
    assert repeated == {"status": 200, "message": "local-0:0,1,1,false unlock:false"}
    assert (await mq.get("message", topic="T", consumer="C"))["message"] == "no consumerQueueOffsetResult"
