"""The synchronous client of the gateway API, `/v1`."""

from mqgate.client.client import Client
from mqgate.client.errors import ClientError, GatewayError, GatewayUnreachable
from mqgate.client.message import body_of, envelope, receipts_of
from mqgate.client.registry import every

__all__ = [
    "Client",
    "ClientError",
    "GatewayError",
    "GatewayUnreachable",
    "body_of",
    "envelope",
    "every",
    "receipts_of",
]
