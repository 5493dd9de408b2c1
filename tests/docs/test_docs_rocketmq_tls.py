"""What the page about RocketMQ says of certificates."""

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mqgate import bootstrap
from mqgate.rocketmq import NotSent, RocketMQError
from mqgate.settings import RocketMQSettings


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for another address than the one it is used at, with its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    now = dt.datetime.now(dt.UTC)
    elsewhere = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("192.0.2.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - dt.timedelta(days=1))
    built = builder.not_valid_after(now + dt.timedelta(days=1)).add_extension(elsewhere, critical=False)
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.fixture
async def greeter(certificate: Path) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server that does nothing but a TLS handshake: its address, and whether somebody went through with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    came = asyncio.Event()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", came
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("checks_host", "trusts", "goes_through"), [(True, True, False), (False, True, True), (False, False, False)]
)
async def test_without_host_names_the_chain_is_still_checked(
    greeter: tuple[str, asyncio.Event], certificate: Path, checks_host: bool, trusts: bool, goes_through: bool
) -> None:
    """Routes carry addresses that certificates seldom name; giving up the name must not mean to trust everybody."""
    address, came = greeter
    settings = RocketMQSettings(
        name_servers=(address,), tls=True, tls_ca=str(certificate) if trusts else "", tls_check_host=checks_host
    )
    client = bootstrap.rocketmq_client(settings)

    with pytest.raises(RocketMQError) as raised:
        await client.routes.brokers()

    await client.close()
    assert came.is_set() == goes_through
    assert ("CERTIFICATE_VERIFY_FAILED" in str(raised.value)) is not goes_through
    assert isinstance(raised.value, NotSent) or goes_through
