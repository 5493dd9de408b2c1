"""TLS and signatures, against a server that requires them."""

import asyncio
import base64
import datetime as dt
import hashlib
import hmac
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scripted_server import ScriptedServer, assert_no_task_left, loop_until, response_to

from mqgate.rocketmq.errors import NoResponse, NotSent
from mqgate.rocketmq.peers import Peers
from mqgate.rocketmq.remoting.command import Command
from mqgate.rocketmq.remoting.signature import Credentials
from mqgate.rocketmq.transport import KeepAlive, Probe, connect

PROBE = Probe(30, {"topic": "probe"})
CREDENTIALS = Credentials(access_key="gate", secret_key="s3cret", security_token="token")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a self-signed certificate for 127.0.0.1 with its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    path.write_bytes(
        built.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@pytest.fixture
async def tls_server(certificate: Path) -> AsyncIterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = ScriptedServer(response_to)
    await server.start(context)
    yield server
    await server.stop()


async def test_requests_are_sent_over_tls(tls_server: ScriptedServer, certificate: Path) -> None:
    """Signatures can be replayed, so they need TLS. The requests are concurrent and larger than a TLS record."""
    peers = Peers(None, ssl.create_default_context(cafile=certificate), 10.0)
    peer = peers.at(tls_server.address, PROBE)
    tls_server.reply = lambda request: response_to(request, body=request.body[::-1])
    bodies = [bytes([n]) * 10_000 * n for n in range(1, 21)]

    responses = await asyncio.gather(*(peers.call(peer, 310, {}, body) for body in bodies))

    assert [response.body for response in responses] == bodies
    assert len(tls_server.links) == 1
    await peers.close()
    await asyncio.wait_for(tls_server.links[0].lost.wait(), 10)
    await assert_no_task_left()


async def test_pending_requests_fail_when_a_tls_server_closes_the_connection(
    tls_server: ScriptedServer, certificate: Path
) -> None:
    """TLS has its own close message, which may arrive in the middle of a response."""
    peers = Peers(None, ssl.create_default_context(cafile=certificate), 60.0)
    peer = peers.at(tls_server.address, PROBE)
    tls_server.reply = None
    call = asyncio.create_task(peers.call(peer, 11, {}))
    [(link, request)] = await tls_server.received()

    link.send(response_to(request, body=b"half")[:-2])
    link.transport.close()

    with pytest.raises(NoResponse, match="middle"):
        await asyncio.wait_for(call, 10)
    tls_server.reply = response_to
    assert (await peers.call(peer, 11, {})).code == 0
    await peers.close()


async def test_an_untrusted_certificate_is_refused(tls_server: ScriptedServer) -> None:
    """No request may be sent to a server that cannot prove its identity."""
    peers = Peers(None, ssl.create_default_context(), 5.0)

    with pytest.raises(NotSent, match="CERTIFICATE_VERIFY_FAILED"):
        await peers.call(peers.at(tls_server.address, PROBE), 11, {"secret": "x"})

    assert not tls_server.requests
    await peers.close()


async def test_connecting_to_a_server_without_tls_fails_in_time(server: ScriptedServer) -> None:
    """Both sides wait for more bytes, so the client needs a timeout."""
    context = ssl.create_default_context()

    with pytest.raises(NotSent):
        await connect(server.address, PROBE, context, 0.2)

    await server.until(lambda: server.links and server.links[0].lost.is_set())


async def test_close_during_a_tls_handshake_leaves_no_task(server: ScriptedServer) -> None:
    """A server may stop responding in the middle of a handshake."""
    server.reads_nothing = True
    peers = Peers(None, ssl.create_default_context(), 30.0)
    call = asyncio.create_task(peers.call(peers.at(server.address, PROBE), 11, {}))
    await server.until(lambda: server.links)

    await peers.close()

    with pytest.raises(NotSent):
        await call
    server.links[0].transport.resume_reading()
    await asyncio.wait_for(server.links[0].lost.wait(), 10)
    await assert_no_task_left()


def _is_signed(request: Command) -> bool:
    """Check a signature as a broker does."""
    unsigned = {name: value for name, value in request.fields.items() if name != "Signature"}
    content = "".join(unsigned[name] for name in sorted(unsigned)).encode() + request.body
    digest = hmac.digest(b"s3cret", content, hashlib.sha1)
    return request.fields.get("Signature") == base64.b64encode(digest).decode()


async def test_every_request_is_signed(server: ScriptedServer) -> None:
    """A broker with access control refuses unsigned requests, probes included."""
    server.reply = response_to
    peers = Peers(CREDENTIALS, None, 5.0, keep_alive=KeepAlive(after=0.02))
    peer = peers.at(server.address, PROBE)

    await peers.call(peer, 310, {"topic": "größe", "b": "1", "Z": "2"}, b"\x00body\xff")
    await server.until(lambda: any(request.code == 30 for _, request in server.requests))

    for _, request in server.requests:
        assert request.fields["AccessKey"] == "gate"
        assert request.fields["SecurityToken"] == "token"
        assert _is_signed(request)
    await peers.close()
    await loop_until(lambda: not peer._open)
