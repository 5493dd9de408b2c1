"""The bundled clients of the original, call by call: they must work unchanged."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from mq_calls import Mq

from mqgate.testing.clock import ManualClock


class HttpProducer:
    """POST with the producer in the query and the message in the form, repeated until status 200."""

    def __init__(self, http: httpx.AsyncClient, producer: str) -> None:
        self.http = http
        self.url = f"/mq/produce?producer={producer}"

    async def send(self, message: str) -> dict[str, Any]:
        body = f"message={quote(message)}"
        headers = {"content-type": "application/x-www-form-urlencoded"}
        response = (await self.http.post(self.url, content=body, headers=headers)).json()
        assert response["status"] == 200
        return dict(response)


class HttpConsumer:
    """GET with the requestId of the last response of status 200, empty at first."""

    def __init__(self, http: httpx.AsyncClient, topic: str, consumer: str, client: str = "") -> None:
        self.http = http
        self.query = f"topic={topic}&consumer={consumer}"
        self.extra = f"&clientId={client}" if client else ""
        self.request_id = ""
        self.messages: list[str] = []

    async def poll(self) -> int:
        url = f"/mq/message?{self.query}&requestId={self.request_id}{self.extra}"
        response = (await self.http.get(url)).json()
        if response["status"] == 200:
            result = response["result"]
            self.request_id = result.get("requestId", "")
            self.messages += [message["message"] for message in result.get("msgList", [])]
            self.messages += [message["message"] for message in result.get("retryMsgList", [])]
        return int(response["status"])

    async def stop(self) -> dict[str, Any]:
        """The inherited one: it says neither clientId nor anything else."""
        response = await self.http.get(f"/mq/ack?{self.query}&requestId={self.request_id}")
        assert response.status_code == 200
        return dict(response.json())


async def test_the_bundled_clients_move_messages_and_ack_with_the_next_fetch(mq: Mq) -> None:
    """The promise of the whole surface: what was sent is consumed once, and nothing is left afterwards."""
    sent = [f"message {number} ü" for number in range(50)]
    producer, consumer = HttpProducer(mq.http, "P"), HttpConsumer(mq.http, "T", "C")
    for text in sent:
        await producer.send(text)

    for _ in range(4):
        assert await consumer.poll() == 200

    assert sorted(consumer.messages) == sorted(sent)
    assert (await mq.http.get("/v1/groups/C/lag")).json()["lag"] == 0


async def test_stopping_a_consumer_acks_its_last_batch(mq: Mq, clock: ManualClock) -> None:
    """stop() commits the last batch of a consumer. Without it the batch is delivered again."""
    await HttpProducer(mq.http, "P").send("last")
    consumer = HttpConsumer(mq.http, "T", "C")
    await consumer.poll()

    response = await consumer.stop()

    assert response["status"] == 200
    assert response["message"].startswith("ok local-")
    assert set(response) == {"status", "message"}
    clock.advance(301)
    successor = HttpConsumer(mq.http, "T", "C")
    await successor.poll()
    assert successor.messages == []


async def test_the_batch_of_a_vanished_consumer_is_delivered_to_the_next(mq: Mq, clock: ManualClock) -> None:
    """Until the lock expires, a second consumer gets 500 and retries."""
    await mq.http.post("/mq/produce?producer=P&message=orphan")
    await HttpConsumer(mq.http, "T", "C").poll()
    successor = HttpConsumer(mq.http, "T", "C")

    assert await successor.poll() == 500
    clock.advance(301)
    assert await successor.poll() == 200

    assert successor.messages == ["orphan"]


async def test_every_broadcast_client_gets_every_message(mq: Mq) -> None:
    """Broadcast consumers have a place of their own per clientId, from their first call on."""
    clients = [HttpConsumer(mq.http, "T", "B", client=name) for name in ("one", "two")]
    for client in clients:
        assert await client.poll() == 200
    for number in range(3):
        await HttpProducer(mq.http, "P").send(f"news {number}")

    for client in clients:
        for _ in range(3):
            assert await client.poll() == 200

    for client in clients:
        assert sorted(client.messages) == ["news 0", "news 1", "news 2"]


async def test_a_broadcast_stop_without_client_id_is_refused_and_changes_nothing(mq: Mq) -> None:
    """The inherited stop() forgets the clientId: 500 as ever, and the batch stays the client's own to ack."""
    client = HttpConsumer(mq.http, "T", "B", client="one")
    await client.poll()
    await HttpProducer(mq.http, "P").send("news")
    await client.poll()

    response = await client.stop()

    assert response == {"status": 500, "message": "consumer:B clientId is null"}
    proper = await mq.get("ack", topic="T", consumer="B", clientId="one", requestId=client.request_id)
    assert proper["message"].startswith("ok ")


async def test_the_cookie_client_without_a_cookie_jar_never_acks(mq: Mq, clock: ManualClock) -> None:
    """That mode of the bundled client sends neither useCookie nor a cookie: its batch comes again."""
    await HttpProducer(mq.http, "P").send("again")
    for _ in range(2):
        response = await mq.http.get("/mq/message?topic=T&consumer=C")
        assert "set-cookie" not in response.headers
        assert [message["message"] for message in response.json()["result"]["msgList"]] == ["again"]
        clock.advance(301)


async def test_a_browser_acks_by_cookie(mq: Mq) -> None:
    """With useCookie the requestId travels in `rid`: set with a batch, dropped when there is none."""
    await HttpProducer(mq.http, "P").send("crumb")
    url = "/mq/message?topic=T&consumer=C&useCookie=true"

    first = await mq.http.get(url)
    second = await mq.http.get(url)

    assert first.headers["set-cookie"] == f"rid={first.json()['result']['requestId']}; Path=/"
    assert second.json()["result"]["ackInfo"]["message"].startswith("ok ")
    assert second.headers["set-cookie"] == "rid=; Path=/; Max-Age=0"
    assert "rid" not in mq.http.cookies


async def test_a_request_id_given_beside_the_cookie_wins(mq: Mq) -> None:
    """The cookie fills in where the parameter is empty; it never overrules what the client says."""
    await HttpProducer(mq.http, "P").send("crumb")
    taken = await mq.fetch()

    mq.http.cookies.set("rid", "stale")
    acked = await mq.fetch(useCookie="true", requestId=taken["requestId"])

    assert acked["ackInfo"]["message"].startswith("ok ")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_fetch_accepts_any_method(mq: Mq, method: str) -> None:
    """The original ignores the method of fetch, ack and unlock."""
    await mq.produce("any")

    response = await mq.call(method, "message?topic=T&consumer=C")

    assert response["result"]["msgListSize"] == 1
