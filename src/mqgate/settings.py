"""Every option on one page: its type, its default, one line of what it is for.

Defaults < file (mqgate.toml) < environment (MQGATE_HTTP_PORT) < flags. Unknown names are errors, and all faults are
reported at once, before anything opens.
"""

import os
import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

MIB = 1 << 20


class SettingsInvalid(Exception):
    """All that is wrong with the settings, a line each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def option(default: Any, doc: str, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"doc": doc, "secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    host: str = option("127.0.0.1", "address to listen on; any but loopback needs a key in the registry")
    port: int = option(8080, "port to listen on; 0 takes a free one")
    workers: int = option(1, "processes that serve, one for each core; more than 1 needs every engine outside of us")
    max_message_bytes: int = option(4 * MIB, "largest body of one message")
    max_request_bytes: int = option(8 * MIB, "largest body of a publish; other calls have smaller limits of their own")
    max_header_bytes: int = option(64 << 10, "largest request line and headers of a request; at most 100 headers")
    max_batch: int = option(1_000, "most messages of a batch, receipts of a settlement, messages of a receive")
    max_answer_bytes: int = option(16 * MIB, "message bytes in one answer; a longer batch is cut, never a message")
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
    max_bulk_messages: int = option(1_000_000, "most messages of one bulk read (Arrow)")
    max_bulk_reads: int = option(4, "bulk reads served at once; more wait a few seconds, then are answered 503")
    header_timeout: float = option(10.0, "seconds for the request line and headers to arrive; then 408")
    body_timeout: float = option(
        30.0, "seconds for the body to arrive, plus one second for each min_rate bytes; then 408"
    )
    idle_timeout: float = option(75.0, "seconds after which a connection that waits for its next request is closed")
    stall_timeout: float = option(
        60.0, "seconds after which a client that does not read its response is disconnected; one more for each min_rate"
    )
    min_rate: int = option(8_192, "bytes per second that a client must send or read at least, beyond the time-outs")
    allowed_hosts: tuple[str, ...] = option(
        ("localhost", "127.0.0.1", "::1"), "Host headers that are accepted without a key; `*` accepts all"
    )
    cors_origins: tuple[str, ...] = option(
        (), "web origins whose pages may use the API, such as https://app.example.com; `*` allows all"
    )
    trusted_proxies: tuple[str, ...] = option(
        (), "networks of proxies whose X-Forwarded-For and X-Forwarded-Proto headers are believed"
    )
    stop_timeout: float = option(30.0, "seconds that running requests get to finish when the server stops")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    directory: str = option("./data", "data directory of the embedded engine")
    synchronous: str = option("full", "full: every 2xx survives a power cut; normal: only a crash of the process")
    max_bytes: int = option(0, "largest size of the database file, 0: as large as the disk; beyond it 507")
    tidy_interval: float = option(10.0, "seconds between two runs of retention and tidying")


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMQSettings:
    name_servers: tuple[str, ...] = option((), "addresses of the name servers, host:port; several for safety")
    cluster: str = option("", "RocketMQ cluster to make topics in; empty: the only one there is")
    namespace: str = option("", "put before all names as namespace%name, so that gateways can share a cluster")
    access_key: str = option("", "user name where brokers ask for one")
    secret_key: str = option("", "password of that user", secret=True)
    security_token: str = option("", "token of that user, where one is in use", secret=True)
    tls: bool = option(default=False, doc="talk TLS to name servers and brokers")
    tls_ca: str = option("", "file of the authorities to trust (PEM); empty: the system's")
    tls_cert: str = option("", "file of our own certificate (PEM), where brokers ask for one")
    tls_key: str = option("", "file of its key (PEM)")
    tls_check_host: bool = option(default=True, doc="refuse certificates that do not name the server's address")
    timeout: float = option(3.0, "seconds that a server may take to answer")
    max_watched_queues: int = option(2_000, "parked pulls held at brokers; beyond it ends are asked for twice a second")
    mirror_interval: float = option(2.0, "seconds between two writes of committed offsets to the brokers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    engine: str = option("sqlite", "where leases lie: sqlite or redis; redis needs messages on RocketMQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    url: str = option("", "redis://user:password@host:6379/0, or rediss:// for TLS", secret=True)
    prefix: str = option("mqgate", "put before all keys, so that others can share the server")
    timeout: float = option(3.0, "seconds that Redis may take to answer, reconnecting included")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    engine: str = option(
        "sqlite", "where the registry, timers, dead letters and idempotency keys lie: sqlite or postgres"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    url: str = option("", "postgresql://user:password@host:5432/database; several hosts with commas", secret=True)
    schema: str = option("mqgate", "schema of our tables; made if it is not there")
    min_connections: int = option(1, "connections held open by a gateway")
    max_connections: int = option(8, "most connections of a gateway; who finds none free waits checkout_timeout")
    connect_timeout: float = option(3.0, "seconds to connect")
    checkout_timeout: float = option(2.0, "seconds to wait for a free connection")
    statement_timeout: float = option(5.0, "seconds that a statement may take")
    gateway_lease: float = option(5.0, "seconds unseen after which a gateway counts as gone, and its claims are free")
    longest_publish: float = option(10.0, "seconds after which a publish under an idempotency key is looked up anew")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    queues: int = option(8, "queues of a topic that does not say")
    max_queues: int = option(1_024, "most queues of a topic")
    retention: float = option(259_200.0, "seconds that messages are kept unless the topic says")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    visibility: float = option(30.0, "seconds that a lease lasts unless the group or the request says")
    max_attempts: int = option(16, "deliveries before a message is dead unless the group says")
    client_ttl: float = option(
        86_400.0, "seconds after which an idle broadcast client is forgotten unless the group says"
    )
    max_clients: int = option(1_000, "most broadcast clients of a group")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    longest_delay: float = option(63_072_000.0, "seconds that a message may be delayed; two years")
    idempotency_window: float = option(600.0, "seconds that an idempotency key is remembered")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    enabled: bool = option(default=True, doc="write what happens to the topic mqgate_events, for Spark")
    gateway: str = option(
        "",
        "what this gateway is called there, also after a restart; empty: host name and port. Workers add their number",
    )
    queues: int = option(4, "queues of that topic; on RocketMQ on each broker")
    retention: float = option(259_200.0, "seconds that events are kept; on RocketMQ the brokers decide")
    flush_interval: float = option(1.0, "seconds between two writes, while anything happens")
    max_buffered: int = option(100_000, "most events that wait while the log takes none; more are dropped and counted")
    lag_interval: float = option(15.0, "seconds between two samples of the lag of groups at work; 0: none")


@dataclass(frozen=True, slots=True, kw_only=True)
class MqSettings:
    anonymous_from: tuple[str, ...] = option(
        (), "networks whose clients may use /mq without a key; empty: loopback while there is no key, then nobody"
    )
    cipher_key: str = option("", "16 characters that open the admin calls of /mq; empty: they are off", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    engine: str = option("sqlite", "where messages lie: sqlite (embedded) or rocketmq")
    level: str = option("info", "debug, info, warning or error")
    format: str = option("auto", "json, console, or auto: console on a terminal")
    requests: str = option("failed", "which requests get a line: failed (answered 5xx) or all")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSettings:
    engine: str = option(
        "sqlite", "where the pipelines' figures lie: sqlite (stats.sqlite3 in the data directory) or postgres"
    )
    minutes: float = option(604_800.0, "seconds that figures by the minute are kept; whole days go at once")
    hours: float = option(7_776_000.0, "seconds that figures by the hour are kept")
    days: float = option(63_072_000.0, "seconds that figures by the day are kept")
    lag: float = option(604_800.0, "seconds that lag by the minute is kept")
    findings: float = option(7_776_000.0, "seconds that reconciliations, their findings and bad input are kept")
    batches: float = option(259_200.0, "seconds that batches are remembered, so that a repeated one is known")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    directory: str = option("./pipelines", "where checkpoints and the archive lie; any path that Spark's driver writes")
    master: str = option("local[2]", "where Spark runs: local[2], spark://host:7077, yarn, k8s://...")
    trigger: float = option(10.0, "seconds between two batches of a live pipeline")
    max_offsets: int = option(2_000, "most batches of events that are counted at once")
    max_messages: int = option(200_000, "most messages that are archived at once")
    archive: tuple[str, ...] = option((), "topics to archive; their events are archived in any case")
    archive_retention: float = option(0.0, "seconds that the archive is kept, by whole hours; 0: for ever")
    reconcile_hours: int = option(3, "how many of the last whole hours are reconciled, every hour")
    stuck_deliveries: int = option(5, "a message delivered so often, and still not settled, is stuck")
    stuck_age: float = option(3_600.0, "seconds after which a message that was delivered and not settled is stuck")
    events_topic: str = option("mqgate_events", "topic in which gateways tell what happened")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    http: HttpSettings = field(default_factory=HttpSettings)
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
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
    log: LogSettings = field(default_factory=LogSettings)
    stats: StatsSettings = field(default_factory=StatsSettings)
    pipelines: PipelineSettings = field(default_factory=PipelineSettings)
    topic: tuple[Mapping[str, Any], ...] = ()
    producer: tuple[Mapping[str, Any], ...] = ()
    group: tuple[Mapping[str, Any], ...] = ()

    @staticmethod
    def load(
        path: Path | None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
    ) -> "Settings":
        """Read all layers, or raise SettingsInvalid with every fault found."""
        faults: list[str] = []
        settings = Settings()
        if path is not None:
            settings = _apply_file(settings, path, faults)
        for name, text in environment.items():
            if name.startswith("MQGATE_") and name not in _NOT_SETTINGS:
                settings = _apply_variable(settings, name, text, faults)
        for name, value in (flags or {}).items():
            group, _, option_name = name.partition(".")
            settings = _set(settings, group, option_name, value, f"flag {name}", faults)
        faults += _check(settings)
        if faults:
            raise SettingsInvalid(faults)
        return settings


# Variables of the command line's client, not of the server.
_NOT_SETTINGS = {"MQGATE_URL", "MQGATE_KEY", "MQGATE_CONFIG"}
_ENTRIES = ("topic", "producer", "group")
_LEVELS = ("debug", "info", "warning", "error")
_CIPHER_KEY_BYTES = 16
# The rows of a few batches.
_LEAST_BUFFERED = 10_000
_PUBLIC_CIPHER_KEY = "DJs32jslkdghDSDf"


def option_groups() -> Mapping[str, Any]:
    """The groups of options by their name in the file."""
    return {each.name: each.default_factory for each in fields(Settings) if each.name not in _ENTRIES}


def _apply_file(settings: Settings, path: Path, faults: list[str]) -> Settings:
    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        faults.append(f"{path}: {error}")
        return settings
    for group, values in tree.items():
        if group in _ENTRIES:
            if isinstance(values, list) and all(isinstance(each, dict) for each in values):
                settings = _with(settings, group, tuple(values))
            else:
                faults.append(f"{path}: write [[{group}]], one table an entry")
        elif not isinstance(values, dict):
            faults.append(f"{path}: unknown setting {group}")
        else:
            for name, value in values.items():
                settings = _set(settings, group, name, value, f"{path}: [{group}] {name}", faults)
    return settings


def _apply_variable(settings: Settings, name: str, text: str, faults: list[str]) -> Settings:
    lower = name.removeprefix("MQGATE_").lower()
    for group in option_groups():
        if lower.startswith(f"{group}_"):
            return _set(settings, group, lower.removeprefix(f"{group}_"), text, name, faults)
    faults.append(f"{name}: unknown setting")
    return settings


def _set(settings: Settings, group: str, name: str, value: Any, where: str, faults: list[str]) -> Settings:
    options: Any = getattr(settings, group, None) if group in option_groups() else None
    hints = get_type_hints(type(options)) if options is not None else {}
    if name not in hints:
        faults.append(f"{where}: unknown setting")
        return settings
    try:
        parsed = _parse(hints[name], value)
    except (TypeError, ValueError, KeyError):
        is_secret = next(each for each in fields(options) if each.name == name).metadata["secret"]
        shown = "the value" if is_secret else repr(value)
        faults.append(f"{where}: {shown} is not {_spoken(hints[name])}")
        return settings
    return _with(settings, group, replace(options, **{name: parsed}))


def _with(settings: Settings, name: str, value: Any) -> Settings:
    changes: dict[str, Any] = {name: value}
    return replace(settings, **changes)


def _parse(wanted: Any, value: Any) -> Any:
    if get_origin(wanted) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(_parse(get_args(wanted)[0], part) for part in parts)
    if wanted is bool and isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    if isinstance(value, str) and wanted is not str:
        return wanted(value)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise TypeError
    return value


def _spoken(wanted: Any) -> str:
    return (
        "a list"
        if isinstance(wanted, types.GenericAlias)
        else {int: "a whole number", float: "a number", bool: "true or false"}.get(wanted, "text")
    )


def _check(settings: Settings) -> list[str]:
    faults = []
    for group in option_groups():
        options = getattr(settings, group)
        faults += [
            f"[{group}] {each.name} must not be negative"
            for each in fields(options)
            if isinstance(value := getattr(options, each.name), int | float) and value < 0
        ]
    if settings.sqlite.synchronous not in {"full", "normal"}:
        faults.append("[sqlite] synchronous must be full or normal")
    if settings.log.level not in _LEVELS:
        faults.append(f"[log] level must be one of {', '.join(_LEVELS)}")
    if settings.log.requests not in {"failed", "all"}:
        faults.append("[log] requests must be failed or all")
    if settings.log.format not in {"auto", "json", "console"}:
        faults.append("[log] format must be auto, json or console")
    faults += _check_engines(settings)
    faults += _check_workers(settings)
    faults += _check_events(settings.events)
    key = settings.mq.cipher_key
    if key and (len(key.encode()) != _CIPHER_KEY_BYTES or key == _PUBLIC_CIPHER_KEY):
        faults.append("[mq] cipher_key must be 16 characters, and not the one that everybody knows")
    networks = {
        "[mq] anonymous_from": settings.mq.anonymous_from,
        "[http] trusted_proxies": settings.http.trusted_proxies,
    }
    for name, network in ((name, each) for name, listed in networks.items() for each in listed):
        try:
            ip_network(network)
        except ValueError:
            faults.append(f"{name}: {network!r} is not a network such as 10.0.0.0/8")
    faults += _check_http(settings.http)
    return faults


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
    if settings.log.engine not in {"sqlite", "rocketmq"}:
        faults.append("[log] engine must be sqlite or rocketmq")
    faults += _check_leases(settings)
    faults += _check_control(settings.control, settings.postgres)
    if settings.stats.engine not in {"sqlite", "postgres"}:
        faults.append("[stats] engine must be sqlite or postgres")
    if settings.stats.engine == "postgres" and settings.control.engine != "postgres" and not settings.postgres.url:
        faults.append("[postgres] url must name the server: postgresql://user:password@host:5432/database")
    rocketmq = settings.rocketmq
    if settings.log.engine == "rocketmq" and not rocketmq.name_servers:
        faults.append("[rocketmq] name_servers must name at least one: host:port")
    for address in rocketmq.name_servers:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            faults.append(f"[rocketmq] name_servers: {address!r} is not host:port")
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,20}", rocketmq.namespace):
        faults.append("[rocketmq] namespace must be at most 20 characters of A-Z a-z 0-9 _ -")
    if bool(rocketmq.access_key) != bool(rocketmq.secret_key):
        faults.append("[rocketmq] access_key and secret_key belong together")
    return faults


def _check_events(events: EventsSettings) -> list[str]:
    faults = []
    if not events.queues:
        faults.append("[events] queues must be 1 or more")
    if not events.flush_interval:
        faults.append("[events] flush_interval must be more than 0")
    if events.max_buffered < _LEAST_BUFFERED:
        faults.append(f"[events] max_buffered must be {_LEAST_BUFFERED} or more")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{0,100}", events.gateway):
        faults.append("[events] gateway must be at most 100 characters of A-Z a-z 0-9 _ . : -")
    return faults


def _check_workers(settings: Settings) -> list[str]:
    if settings.http.workers < 1:
        return ["[http] workers must be 1 or more"]
    engines = {"log": settings.log.engine, "leases": settings.leases.engine, "control": settings.control.engine}
    embedded = [f"[{group}]" for group, engine in engines.items() if engine == "sqlite"]
    if settings.http.workers == 1 or not embedded:
        return []
    return [f"[http] workers: the embedded engine is one process; choose another engine for {', '.join(embedded)}"]


def _check_leases(settings: Settings) -> list[str]:
    if settings.leases.engine not in {"sqlite", "redis"}:
        return ["[leases] engine must be sqlite or redis"]
    if settings.leases.engine == "sqlite":
        return []
    faults = []
    if settings.log.engine != "rocketmq":
        # Redis may be lost at any time; then groups go on where the brokers' offsets say.
        faults.append("[leases] engine redis needs [log] engine rocketmq, which remembers where groups stand")
    if not settings.redis.url:
        faults.append("[redis] url must name the server: redis://user:password@host:6379/0")
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
        faults.append("[postgres] url must name the server: postgresql://user:password@host:5432/database")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", postgres.schema):
        faults.append("[postgres] schema must be lower-case letters, digits and _")
    if not 1 <= postgres.min_connections <= postgres.max_connections:
        faults.append("[postgres] min_connections must be 1 or more, and at most max_connections")
    return faults
