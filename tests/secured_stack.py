"""A RocketMQ as in production: it requires a user, checks permissions and has a certificate."""

import datetime as dt
import ipaddress
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mqgate.rocketmq import Credentials
from mqgate.stack import BrokerSpec, Stack
from mqgate.stack.guard import guard

__all__ = ["BROKER", "ROOT_USER", "Secured", "make_authority", "secured_stack", "sign_server"]

BROKER = "guarded"
ROOT_USER = Credentials(access_key="root", secret_key="root-secret", security_token="")
_AUTH = "org.apache.rocketmq.auth"
_SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "root", "secretKey": "root-secret"}),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
_Key = ec.EllipticCurvePrivateKey


class Secured(NamedTuple):
    """`ca` is the file of the authority that signed a certificate for 127.0.0.1 and no other name."""

    stack: Stack
    ca: Path

    @property
    def name_server(self) -> str:
        return self.stack.name_server


@contextmanager
def secured_stack(**settings: str) -> Iterator[Secured]:
    """A name server and one broker, with these settings too.

    Whoever does not ask for TLS gets none: it is RocketMQ's default to serve both.
    """
    directory = Path(tempfile.mkdtemp(prefix="mqgate-secured-"))
    ca = directory / "ca.pem"
    sign_server(make_authority(ca), directory)
    options = {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": directory / "server.pem",
        "tls.server.keyPath": directory / "server.key",
    }
    stack = Stack(directory / "stack")
    guard(stack, os.getpid())
    # The only options of a JVM that win over its command line, on which a stack switches TLS off.
    with mock.patch.dict(os.environ, _JAVA_OPTIONS=" ".join(f"-D{name}={value}" for name, value in options.items())):
        stack.up([BrokerSpec(name=BROKER, settings=_SETTINGS | settings)])
    yield Secured(stack, ca)
    stack.down()
    shutil.rmtree(directory)


def make_authority(path: Path) -> _Key:
    """Write the certificate of a new authority and return its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    built = _builder(key, "authority").add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    path.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return key


def sign_server(authority: _Key, directory: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = _builder(key, "server").add_extension(named, critical=False).sign(authority, hashes.SHA256())
    (directory / "server.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "server.key").write_bytes(secret)


def _builder(key: _Key, name: str) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    subject, issuer = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]) for common_name in (name, "authority")
    )
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
    return builder.not_valid_after(now + dt.timedelta(days=1))
