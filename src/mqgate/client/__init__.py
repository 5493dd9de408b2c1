"""The clients of the gateway API, `/v1`: blocking and for asyncio. The package imports nothing else of mqgate."""

from mqgate.client.async_client import AsyncClient
from mqgate.client.client import Client
from mqgate.client.delivery import EventKind, Message, Reject, Retry, WorkerEvent
from mqgate.client.errors import ClientError, GatewayError, GatewayUnreachable
from mqgate.client.message import body_of, envelope, receipts_of
from mqgate.client.operations import every, every_async
from mqgate.client.publisher import Publisher, PublisherClosed, PublisherFull
from mqgate.client.worker import Worker
from mqgate.client.worker_group import WorkerError

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "EventKind",
    "GatewayError",
    "GatewayUnreachable",
    "Message",
    "Publisher",
    "PublisherClosed",
    "PublisherFull",
    "Reject",
    "Retry",
    "Worker",
    "WorkerError",
    "WorkerEvent",
    "body_of",
    "envelope",
    "every",
    "every_async",
    "receipts_of",
]
