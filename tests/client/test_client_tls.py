"""Certificates that the client trusts."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mqgate.client import Client, GatewayUnreachable
from secured_stack import make_authority, sign_server


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Suppress the request log."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Start a TLS server. The certificate of its authority is in `ca.pem` of the test directory."""
    sign_server(make_authority(tmp_path / "ca.pem"), tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_certificate_of_a_trusted_authority_is_accepted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE adds the authority of an organisation."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    with Client(url, retry_for=0) as client:
        assert client.info() == {}


def test_any_other_certificate_is_refused(url: str) -> None:
    """A server between client and gateway must not receive the key."""
    with Client(url, "secret", retry_for=0) as client, pytest.raises(GatewayUnreachable, match="certificate"):
        client.info()
