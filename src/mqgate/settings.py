"""Every option: its type, its default and its purpose.

Defaults < file (mqgate.toml) < environment (MQGATE_HTTP_PORT) < flags. Unknown names are errors. All faults are
reported together, before any store is opened.
"""

import os
import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

MIB = 1 << 20


class SettingsInvalid(Exception):
    """All faults of the settings, one line each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def option(default: Any, doc: str, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"doc": doc, "secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    host: str = option(
        "127.0.0.1", "address to listen on; any address but loopback requires an API key in the registry"
    )
    port: int = option(8080, "port to listen on; 0 selects a free port")
    workers: int = option(1, "number of serving processes, one per core; more than 1 requires external engines")
    max_message_bytes: int = option(4 * MIB, "maximum body size of one message")
    max_request_bytes: int = option(8 * MIB, "maximum body size of a publish; other calls have smaller limits")
    max_header_bytes: int = option(
        64 << 10, "maximum size of the request line and headers of a request; at most 100 headers"
    )
    max_batch: int = option(
        1_000, "maximum number of messages in a batch, receipts in a settlement and messages in a receive"
    )
    max_answer_bytes: int = option(
        16 * MIB, "maximum size of the messages in one response; a longer batch is cut between two messages"
    )
    max_requests: int = option(
        20_000, "maximum number of concurrent requests, without parked receives and health checks; above it: 503"
    )
    max_bytes_in_flight: int = option(256 * MIB, "maximum size of all request bodies in memory; above it: 503")
    max_parked: int = option(15_000, "maximum number of parked receives; above it: 503")
    max_parked_per_key: int = option(10_000, "maximum number of parked receives of one API key; above it: 429")
    max_connections: int = option(
        16_384, "maximum number of connections of a process; above it, unused ones are closed, or new ones get 503"
    )
    max_connections_per_address: int = option(
        12_500, "maximum number of connections from one address; trusted proxies are exempt"
    )
    max_unread_bytes: int = option(
        256 * MIB,
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
class SqliteSettings:
    directory: str = option("./data", "data directory of the embedded engine")
    synchronous: str = option(
        "full", "full: a message answered 2xx survives a power failure; normal: it survives only a process crash"
    )
    max_bytes: int = option(0, "maximum size of the database file, above it: 507; 0 means no limit")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    queues: int = option(8, "number of queues of a topic, unless the topic sets it")
    max_queues: int = option(1_024, "maximum number of queues of a topic")
    retention: timedelta = option(timedelta(days=3), "time that messages are kept, unless the topic sets it")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    visibility: timedelta = option(timedelta(seconds=30), "length of a lease, unless the group or the request sets it")
    max_attempts: int = option(16, "number of deliveries before a message is dead-lettered, unless the group sets it")
    client_ttl: timedelta = option(
        timedelta(days=1), "time after which an idle broadcast client is deleted, unless the group sets it"
    )
    max_clients: int = option(1_000, "maximum number of broadcast clients of a group")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    longest_delay: timedelta = option(timedelta(days=730), "maximum delay of a message")
    idempotency_window: timedelta = option(timedelta(minutes=10), "time that an idempotency key is kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    enabled: bool = option(default=True, doc="record events to the topic mqgate_events, for the Spark pipelines")
    gateway: str = option(
        "",
        "name of this gateway in its events, the same after a restart; empty: host name and port. Workers append their "
        "number",
    )
    queues: int = option(4, "number of queues of that topic; on RocketMQ, per broker")
    retention: timedelta = option(timedelta(days=3), "time that events are kept; on RocketMQ, the brokers decide")
    flush_interval: timedelta = option(timedelta(seconds=1), "time between two writes while there are events")
    max_buffered: int = option(
        100_000, "maximum number of events that wait while the log is unavailable; more are dropped and counted"
    )
    lag_interval: timedelta = option(
        timedelta(seconds=15), "time between two samples of the lag of active groups; 0: no samples"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MqSettings:
    anonymous_from: tuple[str, ...] = option(
        (), "networks whose clients may use /mq without a key; empty: loopback while no key exists, none afterwards"
    )
    cipher_key: str = option("", "16 characters that enable the admin calls of /mq; empty: disabled", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSettings:
    level: str = option("info", "minimum level: debug, info, warning or error")
    format: str = option("auto", "json, console, or auto: console on a terminal")
    requests: str = option("failed", "requests that are logged: failed (5xx responses) or all")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSettings:
    engine: str = option(
        "sqlite",
        "engine that stores the statistics of the pipelines: sqlite (stats.sqlite3 in the data directory) or postgres",
    )
    minutes: timedelta = option(timedelta(days=7), "time that statistics by the minute are kept; whole days")
    hours: timedelta = option(timedelta(days=90), "time that statistics by the hour are kept")
    days: timedelta = option(timedelta(days=730), "time that statistics by the day are kept")
    lag: timedelta = option(timedelta(days=7), "time that lag by the minute is kept")
    findings: timedelta = option(
        timedelta(days=90), "time that reconciliations, their findings and malformed input are kept"
    )
    batches: timedelta = option(timedelta(days=3), "time that batch numbers are kept, to recognise a repeated batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    directory: str = option(
        "./pipelines", "directory of the checkpoints and the archive; any path that the Spark driver can write"
    )
    master: str = option("local[2]", "Spark master: local[2], spark://host:7077, yarn, k8s://...")
    trigger: timedelta = option(timedelta(seconds=10), "time between two batches of a live pipeline")
    max_offsets: int = option(2_000, "maximum number of event batches in one Spark batch")
    max_messages: int = option(200_000, "maximum number of messages archived in one Spark batch")
    archive: tuple[str, ...] = option((), "topics to archive; events are always archived")
    archive_retention: timedelta = option(
        timedelta(0), "time that the archive is kept, in whole hours; 0: without limit"
    )
    reconcile_hours: int = option(3, "number of the most recent whole hours that are reconciled every hour")
    stuck_deliveries: int = option(5, "number of deliveries after which an unsettled message is stuck")
    stuck_age: timedelta = option(timedelta(hours=1), "time after which a delivered, unsettled message is stuck")
    events_topic: str = option("mqgate_events", "topic to which gateways record events")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    http: HttpSettings = field(default_factory=HttpSettings)
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    messages: MessageSettings = field(default_factory=MessageSettings)
    rocketmq: RocketMQSettings = field(default_factory=RocketMQSettings)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    control: ControlSettings = field(default_factory=ControlSettings)
    postgres: PostgresSettings = field(default_factory=PostgresSettings)
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)
    group_defaults: GroupSettings = field(default_factory=GroupSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    events: EventsSettings = field(default_factory=EventsSettings)
    mq: MqSettings = field(default_factory=MqSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    stats: StatsSettings = field(default_factory=StatsSettings)
    pipelines: PipelineSettings = field(default_factory=PipelineSettings)
    topic: tuple[Mapping[str, Any], ...] = ()
    producer: tuple[Mapping[str, Any], ...] = ()
    group: tuple[Mapping[str, Any], ...] = ()
    # One sentence for each deprecated name in use.
    deprecations: tuple[str, ...] = ()

    @staticmethod
    def load(
        path: Path | None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
    ) -> "Settings":
        """Read all layers, or raise SettingsInvalid with every fault found."""
        loader = _Loader()
        if path is not None:
            loader.read_file(path)
        for name, text in environment.items():
            if name.startswith("MQGATE_") and name not in _NOT_SETTINGS:
                loader.read_variable(name, text)
        for name, value in (flags or {}).items():
            group, _, option_name = name.partition(".")
            loader.set(group, option_name, value, f"flag {name}")
        return loader.finish()


# Variables of the client commands.
_NOT_SETTINGS = {"MQGATE_URL", "MQGATE_KEY", "MQGATE_CONFIG"}
_ENTRIES = ("topic", "producer", "group")
_LEVELS = ("debug", "info", "warning", "error")
# Names of release 0.1, accepted until the next release.
_DEPRECATED = {
    ("log", "engine"): ("messages", "engine"),
    ("log", "level"): ("logging", "level"),
    ("log", "format"): ("logging", "format"),
    ("log", "requests"): ("logging", "requests"),
}
_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_MAX_DURATION = timedelta(days=36_500)
_CIPHER_KEY_BYTES = 16
# The rows of a few batches.
_MIN_BUFFERED = 10_000
_PUBLIC_CIPHER_KEY = "DJs32jslkdghDSDf"


def option_groups() -> Mapping[str, Any]:
    """Return the option groups by their name in the file."""
    return {group.name: group.default_factory for group in fields(Settings) if group.default_factory is not MISSING}


class _Loader:
    """Settings under construction, with the faults found so far."""

    def __init__(self) -> None:
        self._settings = Settings()
        self._faults: list[str] = []
        # Where each option was last set under its current name, and under a deprecated one.
        self._current: dict[tuple[str, str], str] = {}
        self._deprecated: dict[tuple[str, str], str] = {}

    def read_file(self, path: Path) -> None:
        try:
            tree = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            self._faults.append(f"{path}: {error}")
            return
        for group, values in tree.items():
            if group in _ENTRIES:
                if isinstance(values, list) and all(isinstance(entry, dict) for entry in values):
                    self._replace(group, tuple(values))
                else:
                    self._faults.append(f"{path}: write [[{group}]], one table for each entry")
            elif not isinstance(values, dict):
                self._faults.append(f"{path}: unknown setting {group}")
            else:
                for name, value in values.items():
                    self.set(group, name, value, f"{path}: [{group}] {name}")

    def read_variable(self, variable: str, text: str) -> None:
        lower = variable.removeprefix("MQGATE_").lower()
        for group in (*option_groups(), *{group for group, _ in _DEPRECATED}):
            if lower.startswith(f"{group}_"):
                self.set(group, lower.removeprefix(f"{group}_"), text, variable)
                return
        self._faults.append(f"{variable}: unknown setting")

    def set(self, group: str, name: str, value: Any, where: str) -> None:
        """Set one option. `where` names the place of the value in error texts."""
        new = _DEPRECATED.get((group, name))
        if new is None:
            self._current[group, name] = where
        else:
            self._deprecated[new] = where
            group, name = new
        options: Any = getattr(self._settings, group) if group in option_groups() else None
        hints = get_type_hints(type(options)) if options is not None else {}
        if name not in hints:
            self._faults.append(f"{where}: unknown setting")
            return
        try:
            parsed = _parse(hints[name], value)
        except (TypeError, ValueError, KeyError, OverflowError):
            is_secret = next(option for option in fields(options) if option.name == name).metadata["secret"]
            shown = "the value" if is_secret else repr(value)
            self._faults.append(f"{where}: {shown} is not {_type_name(hints[name])}")
            return
        self._replace(group, replace(options, **{name: parsed}))

    def finish(self) -> Settings:
        for (group, name), where in self._deprecated.items():
            if (group, name) in self._current:
                fault = f"{where} and {self._current[group, name]} set the same option; remove the first (deprecated)"
                self._faults.append(fault)
        self._faults += _check(self._settings)
        if self._faults:
            raise SettingsInvalid(self._faults)
        notes = tuple(
            f"{where} is deprecated; use [{group}] {name} or MQGATE_{group.upper()}_{name.upper()}"
            for (group, name), where in self._deprecated.items()
        )
        return replace(self._settings, deprecations=notes)

    def _replace(self, name: str, value: Any) -> None:
        changes: dict[str, Any] = {name: value}
        self._settings = replace(self._settings, **changes)


def _parse(wanted: Any, value: Any) -> Any:
    if get_origin(wanted) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(_parse(get_args(wanted)[0], part) for part in parts)
    if wanted is timedelta:
        return _parse_duration(value)
    if wanted is bool and isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    if isinstance(value, str) and wanted is not str:
        return wanted(value)
    if type(value) is not wanted:
        raise TypeError
    return value


def _parse_duration(value: Any) -> timedelta:
    """Return the duration of a number of seconds, or of text such as 500ms, 30s or 3d."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        duration = int(match[1]) * _UNITS[match[2]]
    elif isinstance(value, str) or type(value) in {int, float}:
        duration = timedelta(seconds=float(value))
    else:
        raise TypeError
    if duration > _MAX_DURATION:
        raise ValueError
    return duration


def _type_name(wanted: Any) -> str:
    if isinstance(wanted, types.GenericAlias):
        return "a list"
    duration = 'a duration: seconds, or text such as "500ms", "30s" or "3d", at most 36500 days'
    return {int: "a whole number", bool: "true or false", timedelta: duration}.get(wanted, "text")


def _check(settings: Settings) -> list[str]:
    faults = []
    for group in option_groups():
        options = getattr(settings, group)
        faults += [
            f"[{group}] {option.name} must not be negative"
            for option in fields(options)
            if _is_negative(getattr(options, option.name))
        ]
    if settings.sqlite.synchronous not in {"full", "normal"}:
        faults.append("[sqlite] synchronous must be full or normal")
    if settings.logging.level not in _LEVELS:
        faults.append(f"[logging] level must be one of {', '.join(_LEVELS)}")
    if settings.logging.requests not in {"failed", "all"}:
        faults.append("[logging] requests must be failed or all")
    if settings.logging.format not in {"auto", "json", "console"}:
        faults.append("[logging] format must be auto, json or console")
    faults += _check_engines(settings)
    faults += _check_workers(settings)
    faults += _check_events(settings.events)
    key = settings.mq.cipher_key
    if key and (len(key.encode()) != _CIPHER_KEY_BYTES or key == _PUBLIC_CIPHER_KEY):
        faults.append("[mq] cipher_key must be 16 characters, and must not be the published default key")
    networks = {
        "[mq] anonymous_from": settings.mq.anonymous_from,
        "[http] trusted_proxies": settings.http.trusted_proxies,
    }
    for name, network in ((name, network) for name, listed in networks.items() for network in listed):
        try:
            ip_network(network)
        except ValueError:
            faults.append(f"{name}: {network!r} is not a network such as 10.0.0.0/8")
    faults += _check_http(settings.http)
    return faults


def _is_negative(value: Any) -> bool:
    return value < timedelta(0) if isinstance(value, timedelta) else isinstance(value, int) and value < 0


def _check_http(http: HttpSettings) -> list[str]:
    positive = (
        *("max_connections", "max_connections_per_address", "max_header_bytes", "min_rate"),
        *("header_timeout", "body_timeout", "idle_timeout", "stall_timeout"),
    )
    faults = [f"[http] {name} must be more than 0" for name in positive if not getattr(http, name)]
    faults += [
        f"[http] cors_origins: {origin!r} is not an origin such as https://app.example.com"
        for origin in http.cors_origins
        if origin != "*" and not re.fullmatch(r"https?://[^/\s]+/?", origin)
    ]
    return faults


def _check_engines(settings: Settings) -> list[str]:
    faults = []
    if settings.messages.engine not in {"sqlite", "rocketmq"}:
        faults.append("[messages] engine must be sqlite or rocketmq")
    faults += _check_leases(settings)
    faults += _check_control(settings.control, settings.postgres)
    if settings.stats.engine not in {"sqlite", "postgres"}:
        faults.append("[stats] engine must be sqlite or postgres")
    if settings.stats.engine == "postgres" and settings.control.engine != "postgres" and not settings.postgres.url:
        faults.append("[postgres] url is required: postgresql://user:password@host:5432/database")
    rocketmq = settings.rocketmq
    if settings.messages.engine == "rocketmq" and not rocketmq.name_servers:
        faults.append("[rocketmq] name_servers must contain at least one address: host:port")
    for address in rocketmq.name_servers:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            faults.append(f"[rocketmq] name_servers: {address!r} is not host:port")
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,20}", rocketmq.namespace):
        faults.append("[rocketmq] namespace must be at most 20 characters of A-Z a-z 0-9 _ -")
    if bool(rocketmq.access_key) != bool(rocketmq.secret_key):
        faults.append("[rocketmq] access_key and secret_key must be set together")
    return faults


def _check_events(events: EventsSettings) -> list[str]:
    faults = []
    if not events.queues:
        faults.append("[events] queues must be 1 or more")
    if not events.flush_interval:
        faults.append("[events] flush_interval must be more than 0")
    if events.max_buffered < _MIN_BUFFERED:
        faults.append(f"[events] max_buffered must be {_MIN_BUFFERED} or more")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{0,100}", events.gateway):
        faults.append("[events] gateway must be at most 100 characters of A-Z a-z 0-9 _ . : -")
    return faults


def _check_workers(settings: Settings) -> list[str]:
    if settings.http.workers < 1:
        return ["[http] workers must be 1 or more"]
    engines = {
        "messages": settings.messages.engine,
        "leases": settings.leases.engine,
        "control": settings.control.engine,
    }
    embedded = [f"[{group}]" for group, engine in engines.items() if engine == "sqlite"]
    if settings.http.workers == 1 or not embedded:
        return []
    return [
        f"[http] workers: the embedded engine supports one process; choose another engine for {', '.join(embedded)}"
    ]


def _check_leases(settings: Settings) -> list[str]:
    if settings.leases.engine not in {"sqlite", "redis"}:
        return ["[leases] engine must be sqlite or redis"]
    if settings.leases.engine == "sqlite":
        return []
    faults = []
    if settings.messages.engine != "rocketmq":
        # Redis can lose its data. Groups then continue at the consumer offsets of the brokers.
        faults.append(
            "[leases] engine redis requires [messages] engine rocketmq, which keeps a copy of the committed offsets"
        )
    if not settings.redis.url:
        faults.append("[redis] url is required: redis://user:password@host:6379/0")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", settings.redis.prefix):
        faults.append("[redis] prefix must be 1 to 64 characters of A-Z a-z 0-9 _ . : -")
    if not settings.redis.timeout:
        faults.append("[redis] timeout must be more than 0")
    return faults


def _check_control(control: ControlSettings, postgres: PostgresSettings) -> list[str]:
    faults = []
    if control.engine not in {"sqlite", "postgres"}:
        faults.append("[control] engine must be sqlite or postgres")
    if control.engine == "postgres" and not postgres.url:
        faults.append("[postgres] url is required: postgresql://user:password@host:5432/database")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", postgres.schema):
        faults.append("[postgres] schema must be lower-case letters, digits and _")
    if not 1 <= postgres.min_connections <= postgres.max_connections:
        faults.append("[postgres] min_connections must be 1 or more, and at most max_connections")
    return faults
