"""Common rules of the dialect: response format, methods, malformed forms, CORS."""

import pytest
from mq_calls import Mq

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
async def test_a_wrong_method_is_reported_in_the_body(mq: Mq, method: str, path: str) -> None:
    """Clients of the dialect read the body only."""
    response = await mq.call(method, path)

    assert response["status"] == 500
    assert f"method {method} is not supported" in response["message"]


async def test_an_unknown_mq_path_is_404(mq: Mq) -> None:
    """It is the only response with another HTTP status, and its body is JSON of the dialect."""
    response = await mq.http.get("/mq/produce/batch")

    assert response.status_code == 404
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"status": 404, "message": "no route for /mq/produce/batch"}


@pytest.mark.parametrize("path", ["produce?producer=P&message=m", "message?topic=T&consumer=none", "nowhere"])
async def test_pages_of_other_origins_are_refused(mq: Mq, path: str) -> None:
    """The dialect has no keys, so every page that a user opens could publish and consume."""
    response = await mq.http.post(f"/mq/{path}", headers={"origin": "http://elsewhere"})

    assert response.json()["status"] == 500
    assert "http://elsewhere" in response.json()["message"]
    assert "access-control-allow-origin" not in response.headers


async def test_a_preflight_is_not_granted_and_reaches_no_queue(mq: Mq) -> None:
    """CORS is off unless `[http] cors_origins` names the page's origin. Asking locks no messages."""
    await mq.produce("m")
    asked = {"origin": "http://elsewhere", "access-control-request-method": "GET"}

    response = await mq.http.options("/mq/message?topic=T&consumer=C", headers=asked)

    assert "access-control-allow-origin" not in response.headers
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
async def test_a_malformed_form_is_400(mq: Mq, content_type: str, body: bytes) -> None:
    """Nothing is stored from a malformed form."""
    response = await mq.call("POST", "produce?producer=P", content=body, headers={"content-type": content_type})

    assert response["status"] == 400
    assert (await mq.http.get("/v1/topics/T/messages")).json()["items"] == []


async def test_an_internal_error_is_reported_in_the_body_with_the_request_id(mq: Mq, gateway: Gateway) -> None:
    """The client logs the message, and the id leads to the log of the gateway."""
    await mq.produce("m")

    async def broken(*_: object) -> None:
        raise RuntimeError

    gateway.leases.acquire = broken  # type: ignore[assignment,method-assign]
    response = await mq.call("GET", "message?topic=T&consumer=C", headers={"x-request-id": "r-17"})

    assert response["status"] == 500
    assert "r-17" in response["message"]


async def test_a_binary_message_becomes_a_dead_letter(mq: Mq) -> None:
    """/v1 accepts any bytes, but the dialect supports text only. The other messages are delivered."""
    await mq.register("topics/one", queues=1)
    await mq.register("groups/G", topic="one", mode="queue", maxAttempts=2)
    octets = {"content-type": "application/octet-stream"}
    for body in (b"before", b"\xff", b"after"):
        await mq.http.post("/v1/topics/one/messages", content=body, headers=octets)

    seen: list[str] = []
    request_id = ""
    for _ in range(8):
        response = await mq.get("message", topic="one", consumer="G", requestId=request_id)
        if response["status"] == 200:
            request_id = response["result"].get("requestId", "")
            seen += [message["message"] for message in response["result"].get("msgList", [])]

    assert seen == ["before", "after"]
    (dead,) = (await mq.http.get("/v1/groups/G/dead-letters")).json()["items"]
    assert dead["reason"] == "not UTF-8: /mq carries text only"
