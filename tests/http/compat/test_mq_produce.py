"""/mq/produce: stored messages and their queues."""

from datetime import timedelta
from pathlib import Path

import pytest
from mq_calls import Mq

from mqgate.settings import HttpSettings, Settings, SqliteSettings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        http=HttpSettings(max_message_bytes=1_000),
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=timedelta(hours=1)),
    )


async def stored(mq: Mq, message_id: str) -> dict[str, object]:
    return dict((await mq.http.get(f"/v1/topics/T/messages/{message_id}")).json())


async def queues_of(mq: Mq, count: int, **form: str) -> list[int]:
    return [(await mq.produce("m", **form))["messageQueue"]["queueId"] for _ in range(count)]


async def test_a_send_returns_the_complete_send_result(mq: Mq) -> None:
    """Clients print the SendResult of the broker, so its members are part of the dialect."""
    result = await mq.produce("héllo")

    message_id = result["msgId"]
    assert result == {
        "sendStatus": "SEND_OK",
        "msgId": message_id,
        "messageQueue": {"topic": "T", "brokerName": "local", "queueId": 0},
        "queueOffset": 0,
        "offsetMsgId": message_id,
        "regionId": "DefaultRegion",
        "traceOn": False,
    }
    assert (await stored(mq, message_id))["body"] == "héllo"


@pytest.mark.parametrize("place", ["query", "form", "multipart", "raw form"])
async def test_parameters_are_read_from_query_and_forms(mq: Mq, place: str) -> None:
    """Clients send them in the query, a form, a multipart form, or a form with raw UTF-8."""
    text = "a+b & ü"
    values = {"producer": "P", "message": text}
    options = {
        "query": {"params": values},
        "form": {"data": values},
        "multipart": {"files": {name: (None, value) for name, value in values.items()}},
        "raw form": {
            "content": "producer=P&message=a%2Bb %26 ü".encode(),
            "headers": {"content-type": "application/x-www-form-urlencoded; charset=UTF-8"},
        },
    }

    response = await mq.call("POST", "produce", **options[place])

    assert response["status"] == 200
    assert (await stored(mq, response["result"]["msgId"]))["body"] == text


async def test_unknown_parameters_are_ignored(mq: Mq) -> None:
    """Newer clients send more parameters, also repeated ones."""
    response = await mq.call("POST", "produce?producer=P&message=m&tags=a&tags=b&flag")

    assert response["status"] == 200


async def test_a_json_body_sets_no_parameters(mq: Mq) -> None:
    """The original reads forms only, and a JSON body must not be stored as something else."""
    response = await mq.call("POST", "produce", json={"producer": "P", "message": "m"})

    assert response == {"status": 400, "message": "producer must not be blank"}


async def test_keys_are_kept_for_look_up_but_do_not_choose_the_queue(mq: Mq) -> None:
    """KEYS of one order land in all queues, as the broker's own client spreads them."""
    results = [await mq.produce("m", keys="order-1") for _ in range(4)]

    assert [result["messageQueue"]["queueId"] for result in results] == [0, 1, 0, 1]
    found = (await mq.http.get("/v1/topics/T/messages", params={"key": "order-1"})).json()["items"]
    assert {message["id"] for message in found} == {result["msgId"] for result in results}
    assert {message["key"] for message in found} == {"order-1"}


async def test_an_order_id_always_takes_the_queue_that_java_would_choose(mq: Mq) -> None:
    """Senders beside the gateway hash in Java: one order in two queues would be consumed out of order."""
    await mq.register("topics/T", queues=8)

    assert await queues_of(mq, 3, orderId="order-1") == [6, 6, 6]
    assert await queues_of(mq, 1, orderId=" order-1\t") == [6]
    # A surrogate pair counts as two characters in Java.
    assert await queues_of(mq, 1, orderId="😀") == [3]


async def test_an_order_id_wins_over_ordered_and_a_blank_one_is_none(mq: Mq) -> None:
    """The precedence decides which queue a message takes, so it is part of the order promised."""
    await mq.register("topics/T", queues=8)

    assert await queues_of(mq, 2, orderId="order-1", ordered="true") == [6, 6]
    assert await queues_of(mq, 2, orderId=" ", ordered="true") == [1, 2]


async def test_ordered_sends_go_round_strictly_whatever_else_is_sent(mq: Mq) -> None:
    """The n-th ordered message is stored in queue n mod count, also between ordinary sends."""
    await mq.register("topics/T", queues=3)
    chosen = []

    for _ in range(5):
        chosen += await queues_of(mq, 1, ordered="on")
        await queues_of(mq, 1)
        await queues_of(mq, 1, ordered="0")

    assert chosen == [1, 2, 0, 1, 2]


async def test_a_refused_send_does_not_advance_the_queue(mq: Mq) -> None:
    """Skipping a queue would break the strict order of stored messages."""
    await queues_of(mq, 1, ordered="true")

    await mq.post("produce", producer="P", message="m", ordered="true", delayLevel="99")

    assert await queues_of(mq, 1, ordered="true") == [0]


@pytest.mark.parametrize("level", ["0", "19", "x", "1.5", "99999999999"])
async def test_a_delay_level_outside_the_brokers_table_is_refused(mq: Mq, level: str) -> None:
    """A level that no broker has must not become some other delay."""
    response = await mq.post("produce", producer="P", message="m", delayLevel=level)

    assert response == {"status": 400, "message": "delayLevel must be a whole number from 1 to 18"}


async def test_a_delay_level_is_waited_for_except_on_the_ordered_paths(mq: Mq) -> None:
    """A message that was to wait must not arrive at once; on the ordered paths the dialect never delayed."""
    waiting = await mq.produce("m", delayLevel="3")
    at_once = [await mq.produce("m", delayLevel="3", orderId="o"), await mq.produce("m", delayLevel="3", ordered="1")]

    assert (waiting["sendStatus"], waiting["messageQueue"]["brokerName"]) == ("SEND_OK", "timer")
    assert [result["messageQueue"]["brokerName"] for result in at_once] == ["local", "local"]
    assert (await mq.post("produce", producer="P", message="m", delayLevel="19"))["status"] == 400


async def test_a_delivery_timestamp_of_the_past_means_now(mq: Mq) -> None:
    """The timer form of the dialect takes an instant; one that has passed must not lose the message."""
    past = await mq.produce("m", deliveryTimestamp="1000")
    future = await mq.produce("m", deliveryTimestamp="1790000000000")

    assert past["messageQueue"]["brokerName"] == "local"
    assert (await mq.post("produce", producer="P", message="m", deliveryTimestamp="99999999999999"))["status"] == 400
    assert future["messageQueue"]["brokerName"] == "timer"


@pytest.mark.parametrize("tries", ["0", "11"])
async def test_async_retries_are_checked(mq: Mq, tries: str) -> None:
    """What the original refuses stays refused; what it accepts is accepted."""
    refused = await mq.post("produce", producer="P", message="m", asyncRetryTimesIfSendFailed=tries)

    assert refused["status"] == 400
    assert (await mq.produce("m", asyncRetryTimesIfSendFailed="10"))["sendStatus"] == "SEND_OK"
    assert (await mq.produce("m", asyncRetryTimesIfSendFailed=""))["sendStatus"] == "SEND_OK"


@pytest.mark.parametrize(
    ("form", "status", "said"),
    [
        ({"producer": "P"}, 400, "message must not be blank"),
        ({"producer": "P", "message": " \n"}, 400, "message must not be blank"),
        ({"producer": " ", "message": "m"}, 400, "producer must not be blank"),
        ({"producer": "nobody", "message": "m"}, 500, "producer:nobody haven't registered"),
        ({"producer": "P", "message": "m" * 1_001}, 400, "a message may have 1000 bytes"),
        ({"producer": "P", "message": "m", "keys": "a\x01b"}, 400, "keys must not contain U+0001 or U+0002"),
        ({"producer": "P", "message": "m", "ordered": "perhaps"}, 400, "ordered must be true or false"),
        ({"producer": ["P", "P"], "message": "m"}, 400, "producer was sent more than once. Send it once."),
    ],
)
async def test_an_invalid_send_is_reported_in_the_body_and_not_stored(
    mq: Mq, form: dict[str, str], status: int, said: str
) -> None:
    """Clients distinguish errors by the status in the body: 400 for invalid input, 500 otherwise."""
    assert await mq.post("produce", **form) == {"status": status, "message": said}

    assert (await mq.http.get("/v1/topics/T/messages")).json()["items"] == []


async def test_a_rate_limited_send_is_refused_and_retried(mq: Mq) -> None:
    """HttpProducer repeats every send that is not 200, so no message is lost."""
    await mq.register("producers/P", topic="T", rateLimit={"rate": 1, "burst": 1})
    await mq.produce("first")

    response = await mq.post("produce", producer="P", message="second")

    assert response == {"status": 500, "message": "producer P may publish 1 messages a second"}
