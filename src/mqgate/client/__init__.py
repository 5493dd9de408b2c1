"""The clients of the gateway API, `/v1`: blocking and for asyncio. The package imports nothing else of mqgate."""

from mqgate.client.async_client import AsyncClient
from mqgate.client.client import Client
from mqgate.client.errors import ClientError, GatewayError, GatewayUnreachable
from mqgate.client.message import body_of, envelope, receipts_of
from mqgate.client.operations import every, every_async

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "GatewayError",
    "GatewayUnreachable",
    "body_of",
    "envelope",
    "every",
    "every_async",
    "receipts_of",
]
