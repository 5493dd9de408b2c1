"""The stores of messages, leases and control data."""

from dataclasses import dataclass
from datetime import timedelta

from mqgate.settings.option import option

__all__ = [
    "ControlSettings",
    "LeaseSettings",
    "MessageSettings",
    "PostgresSettings",
    "RedisSettings",
    "RocketMQSettings",
    "SqliteSettings",
]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    directory: str = option("./data", "data directory of the embedded engine")
    synchronous: str = option(
        "full", "full: a message answered 2xx survives a power failure; normal: it survives only a process crash"
    )
    max_bytes: int = option(0, "maximum size of the database file, above it: 507; 0 means no limit")
    max_tail_bytes: int = option(
        32 * _MIB, "maximum size of the newest messages of all queues that are kept in memory for reads; 0: none"
    )
    tidy_interval: timedelta = option(timedelta(seconds=10), "time between two runs of retention and cleanup")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSettings:
    engine: str = option("sqlite", "engine that stores messages: sqlite (embedded) or rocketmq")


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMQSettings:
    name_servers: tuple[str, ...] = option((), "addresses of the name servers, host:port; list several for redundancy")
    cluster: str = option("", "RocketMQ cluster in which topics are created; empty: the only registered cluster")
    namespace: str = option("", "prefix of all names, as namespace%name, so that gateways can share a cluster")
    access_key: str = option("", "user name, if the brokers require authentication")
    secret_key: str = option("", "password of that user", secret=True)
    security_token: str = option("", "security token of that user, if one is in use", secret=True)
    tls: bool = option(default=False, doc="use TLS to name servers and brokers")
    tls_ca: str = option("", "file of trusted certificate authorities (PEM); empty: those of the system")
    tls_cert: str = option("", "file of the client certificate (PEM), if the brokers require one")
    tls_key: str = option("", "file of the private key of that certificate (PEM)")
    tls_check_host: bool = option(default=True, doc="reject certificates that do not contain the server's address")
    timeout: timedelta = option(timedelta(seconds=3), "maximum response time of a server")
    max_watched_queues: int = option(
        2_000, "maximum number of pulls parked at brokers; above it, queue bounds are polled twice a second"
    )
    mirror_interval: timedelta = option(
        timedelta(seconds=2), "time between two writes of committed offsets to the brokers"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    engine: str = option("sqlite", "engine that stores leases: sqlite or redis; redis requires messages on RocketMQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    url: str = option("", "redis://user:password@host:6379/0, or rediss:// for TLS", secret=True)
    prefix: str = option("mqgate", "prefix of all keys, so that other applications can share the server")
    timeout: timedelta = option(timedelta(seconds=3), "maximum response time of Redis, including reconnects")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    engine: str = option(
        "sqlite", "engine that stores the registry, timers, dead letters and idempotency keys: sqlite or postgres"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    url: str = option(
        "", "postgresql://user:password@host:5432/database; several hosts are separated by commas", secret=True
    )
    schema: str = option("mqgate", "schema of the tables; created if it does not exist")
    min_connections: int = option(1, "minimum pool size")
    max_connections: int = option(8, "maximum pool size; callers wait up to checkout_timeout")
    connect_timeout: timedelta = option(timedelta(seconds=3), "maximum time to connect")
    checkout_timeout: timedelta = option(timedelta(seconds=2), "maximum time to wait for a free connection")
    statement_timeout: timedelta = option(timedelta(seconds=5), "maximum run time of a statement")
    gateway_lease: timedelta = option(
        timedelta(seconds=5), "time without a heartbeat after which the claims of a gateway are released"
    )
    longest_publish: timedelta = option(
        timedelta(seconds=10),
        "time after which the outcome of an unfinished publish with an idempotency key is looked up again",
    )
