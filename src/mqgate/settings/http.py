"""The HTTP server and its dialects."""

from dataclasses import dataclass
from datetime import timedelta

from mqgate.settings.option import option

__all__ = ["HttpSettings", "MqSettings"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    host: str = option(
        "127.0.0.1", "address to listen on; any address but loopback requires an API key in the registry"
    )
    port: int = option(8080, "port to listen on; 0 selects a free port")
    workers: int = option(1, "number of serving processes, one per core; more than 1 requires external engines")
    max_message_bytes: int = option(4 * _MIB, "maximum body size of one message")
    max_request_bytes: int = option(8 * _MIB, "maximum body size of a publish; other calls have smaller limits")
    max_header_bytes: int = option(
        64 << 10, "maximum size of the request line and headers of a request; at most 100 headers"
    )
    max_batch: int = option(
        1_000, "maximum number of messages in a batch, receipts in a settlement and messages in a receive"
    )
    max_answer_bytes: int = option(
        16 * _MIB, "maximum size of the messages in one response; a longer batch is cut between two messages"
    )
    max_requests: int = option(
        20_000, "maximum number of concurrent requests, without parked receives and health checks; above it: 503"
    )
    max_bytes_in_flight: int = option(256 * _MIB, "maximum size of all request bodies in memory; above it: 503")
    max_parked: int = option(15_000, "maximum number of parked receives; above it: 503")
    max_parked_per_key: int = option(10_000, "maximum number of parked receives of one API key; above it: 429")
    max_connections: int = option(
        16_384, "maximum number of connections of a process; above it, unused ones are closed, or new ones get 503"
    )
    max_connections_per_address: int = option(
        12_500, "maximum number of connections from one address; trusted proxies are exempt"
    )
    max_unread_bytes: int = option(
        256 * _MIB,
        "maximum size of unread responses, incomplete heads and pipelined requests; above it, the slowest clients are "
        "disconnected",
    )
    max_bulk_messages: int = option(1_000_000, "maximum number of messages of one bulk read (Arrow)")
    max_bulk_reads: int = option(4, "maximum number of concurrent bulk reads; more wait a few seconds, then get 503")
    header_timeout: timedelta = option(
        timedelta(seconds=10), "time for the request line and headers to arrive; then 408"
    )
    body_timeout: timedelta = option(
        timedelta(seconds=30), "time for the body to arrive, plus one second for each min_rate bytes; then 408"
    )
    idle_timeout: timedelta = option(
        timedelta(seconds=75), "time after which a connection that waits for its next request is closed"
    )
    stall_timeout: timedelta = option(
        timedelta(minutes=1),
        "time after which a client that does not read its response is disconnected; plus one second for each min_rate "
        "bytes",
    )
    min_rate: int = option(8_192, "minimum bytes per second that a client must send or read, beyond the time-outs")
    allowed_hosts: tuple[str, ...] = option(
        ("localhost", "127.0.0.1", "::1"), "Host headers that are accepted without a key; `*` accepts all"
    )
    cors_origins: tuple[str, ...] = option(
        (), "web origins whose pages may use the API, such as https://app.example.com; `*` allows all"
    )
    trusted_proxies: tuple[str, ...] = option(
        (), "networks of proxies whose X-Forwarded-For and X-Forwarded-Proto headers are trusted"
    )
    stop_timeout: timedelta = option(
        timedelta(seconds=30), "time that running requests have to finish when the server stops"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MqSettings:
    anonymous_from: tuple[str, ...] = option(
        (), "networks whose clients may use /mq without a key; empty: loopback while no key exists, none afterwards"
    )
    cipher_key: str = option("", "16 characters that enable the admin calls of /mq; empty: disabled", secret=True)
