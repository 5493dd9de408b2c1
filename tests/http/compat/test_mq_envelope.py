"""What every address of the dialect shares: the envelope, the methods, forms that are not forms, CORS."""

import pytest
from mq_surface import Mq

from mqgate.bootstrap import Gateway


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "produce?producer=P&message=m"),
        ("POST", "clustering/queue/offset?consumer=C"),
        ("PUT", "config/C"),
        ("GET", "unregister?consumer=C"),
        ("GET", "consumer/config"),
    ],
)
async def test_a_wrong_method_is_told_in_the_envelope(mq: Mq, method: str, path: str) -> None:
    """Clients of this dialect read the body only: an HTTP 405 would look like a broken server to them."""
    answer = await mq.call(method, path)

    assert answer["status"] == 500
    assert f"method {method} is not supported" in answer["message"]


async def test_an_address_that_is_not_there_is_a_plain_404(mq: Mq) -> None:
    """The one case in which HTTP's own status speaks; it is JSON of this dialect all the same."""
    answer = await mq.http.get("/mq/produce/batch")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"status": 404, "message": "no route for /mq/produce/batch"}


@pytest.mark.parametrize("path", ["produce?producer=P&message=m", "message?topic=T&consumer=none", "nowhere"])
async def test_pages_of_other_origins_are_refused(mq: Mq, path: str) -> None:
    """The dialect has no keys, so every page that a user opens could publish and consume."""
    answer = await mq.http.post(f"/mq/{path}", headers={"origin": "http://elsewhere"})

    assert answer.json()["status"] == 500
    assert "http://elsewhere" in answer.json()["message"]
    assert "access-control-allow-origin" not in answer.headers


async def test_a_preflight_is_not_granted_and_reaches_no_queue(mq: Mq) -> None:
    """CORS is off unless `[http] cors_origins` names the page's origin. Asking locks no messages."""
    await mq.produce("m")
    asked = {"origin": "http://elsewhere", "access-control-request-method": "GET"}

    answer = await mq.http.options("/mq/message?topic=T&consumer=C", headers=asked)

    assert "access-control-allow-origin" not in answer.headers
    assert (await mq.fetch())["msgListSize"] == 1


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded", b"message=%ff"),
        ("application/x-www-form-urlencoded", b"message=\xff"),
        ("application/x-www-form-urlencoded", b"message=m&" + b"&".join([b"a=b"] * 100)),
        ("multipart/form-data", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"nonsense"),
        (
            "multipart/form-data; boundary=x; charset=unicode_escape",
            b'--x\r\nContent-Disposition: form-data; name="message"\r\n\r\n\\ud800\r\n--x--\r\n',
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="message"\r\n\r\n\xff\r\n--x--\r\n',
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="message"; filename="f"\r\n\r\nm\r\n--x--\r\n',
        ),
    ],
)
async def test_a_form_that_cannot_be_read_is_the_callers_to_mend(mq: Mq, content_type: str, body: bytes) -> None:
    """Broken bytes are 400 and stored as nothing: a guess would become somebody's message."""
    answer = await mq.call("POST", "produce?producer=P", content=body, headers={"content-type": content_type})

    assert answer["status"] == 400
    assert (await mq.http.get("/v1/topics/T/messages")).json()["items"] == []


async def test_a_bug_is_answered_in_the_envelope_with_the_requests_id(mq: Mq, gateway: Gateway) -> None:
    """Even then no problem document: the client logs the message, and the id leads to our log."""
    await mq.produce("m")

    async def broken(*_: object) -> None:
        raise RuntimeError

    gateway.leases.acquire = broken  # type: ignore[assignment,method-assign]
    answer = await mq.call("GET", "message?topic=T&consumer=C", headers={"x-request-id": "r-17"})

    assert answer["status"] == 500
    assert "r-17" in answer["message"]


async def test_a_body_that_is_no_text_dies_instead_of_blocking_its_queue(mq: Mq) -> None:
    """/v1 takes any bytes, this dialect carries text: the culprit dies, the rest is delivered."""
    await mq.register("topics/one", queues=1)
    await mq.register("groups/G", topic="one", mode="queue", maxAttempts=2)
    octets = {"content-type": "application/octet-stream"}
    for body in (b"before", b"\xff", b"after"):
        await mq.http.post("/v1/topics/one/messages", content=body, headers=octets)

    seen: list[str] = []
    request_id = ""
    for _ in range(8):
        answer = await mq.get("message", topic="one", consumer="G", requestId=request_id)
        if answer["status"] == 200:
            request_id = answer["result"].get("requestId", "")
            seen += [each["message"] for each in answer["result"].get("msgList", [])]

    assert seen == ["before", "after"]
    (dead,) = (await mq.http.get("/v1/groups/G/dead-letters")).json()["items"]
    assert dead["reason"] == "not UTF-8: /mq carries text only"
