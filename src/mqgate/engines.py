"""Opens the configured stores: message log, lease store and control data."""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import structlog

from mqgate.adapters.apprise.sender import AppriseSender
from mqgate.adapters.local.rate_limits import LocalRateLimits
from mqgate.adapters.sqlite.alarm_settings import SqliteAlarmSettings
from mqgate.adapters.sqlite.alarm_store import SqliteAlarmStore
from mqgate.adapters.sqlite.application_store import SqliteApplicationStore
from mqgate.adapters.sqlite.dead_letters import SqliteDeadLetters
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.gateway_reports import SqliteGatewayReports
from mqgate.adapters.sqlite.idempotency import SqliteIdempotencyStore
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.registry_store import SqliteRegistryStore
from mqgate.adapters.sqlite.session_store import SqliteSessionStore
from mqgate.adapters.sqlite.timer_store import SqliteTimerStore
from mqgate.adapters.webhook.sender import WebhookSender
from mqgate.consumption.long_poll import LongPoll
from mqgate.core.alarms import ChannelKind
from mqgate.core.errors import Busy
from mqgate.core.message import instant
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.ports.alarm_channels import ChannelSender
from mqgate.ports.alarm_settings import AlarmSettingsStore
from mqgate.ports.alarm_store import AlarmStore
from mqgate.ports.application_store import ApplicationStore
from mqgate.ports.dead_letters import DeadLetterStore
from mqgate.ports.gateway_reports import GatewayReports
from mqgate.ports.idempotency import IdempotencyStore
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.rate_limits import RateLimitStore
from mqgate.ports.registry_store import RegistryStore
from mqgate.ports.session_store import SessionStore
from mqgate.ports.timer_store import TimerStore
from mqgate.settings import PostgresSettings, RedisSettings, Settings, SettingsInvalid
from mqgate.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog
    from mqgate.adapters.rocketmq.offset_mirror import RocketMQOffsetMirror

__all__ = [
    "AlarmStores",
    "Control",
    "Leases",
    "Log",
    "Service",
    "channel_senders",
    "open_control",
    "open_engine",
    "open_leases",
    "open_log",
]


_log = structlog.get_logger()


def open_engine(settings: Settings, wall_ms: Callable[[], int] | None) -> Engine | None:
    """Open the data directory if a store uses it, else return None."""
    if "sqlite" not in {settings.messages.engine, settings.leases.engine, settings.control.engine}:
        return None
    sqlite = settings.sqlite
    extra: dict[str, Any] = {} if wall_ms is None else {"wall_ms": wall_ms}
    return Engine(Path(sqlite.directory), synchronous=sqlite.synchronous, max_bytes=sqlite.max_bytes, **extra)


def _require(engine: Engine | None) -> Engine:
    assert engine is not None, "a store on SQLite has an engine"  # noqa: S101 - for the type checker
    return engine


class Log(NamedTuple):
    """Message log and, on RocketMQ, the offset mirror."""

    log: "SqliteMessageLog | RocketMQMessageLog"
    mirror: "RocketMQOffsetMirror | None"

    def invalidate_topic(self, topic: str) -> None:
        """Drop cached facts of a topic that another gateway may have changed. SQLite has only one gateway."""
        if not isinstance(self.log, SqliteMessageLog):
            self.log.invalidate_topic(topic)

    async def close(self) -> None:
        """Close the connections to the brokers. A SQLite log is closed with its engine."""
        if not isinstance(self.log, SqliteMessageLog):
            await self.log.close()


async def open_log(settings: Settings, engine: Engine | None, metrics: Metrics) -> Log:
    """Open the log that the settings name."""
    if settings.messages.engine == "rocketmq":
        # Imported here because the embedded engine does not need the RocketMQ client.
        from mqgate.adapters.rocketmq.client_factory import client_of, wire_names  # noqa: PLC0415
        from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog  # noqa: PLC0415
        from mqgate.adapters.rocketmq.offset_mirror import RocketMQOffsetMirror  # noqa: PLC0415

        client, wire = client_of(settings.rocketmq), wire_names(settings.rocketmq)
        broker_log = RocketMQMessageLog(
            client,
            wire=wire,
            cluster=settings.rocketmq.cluster,
            max_watched_queues=settings.rocketmq.max_watched_queues,
            watched=metrics.watch_requests.inc,
        )
        return Log(broker_log, RocketMQOffsetMirror(client, broker_log, wire))
    log = SqliteMessageLog(_require(engine), max_tail_bytes=settings.sqlite.max_tail_bytes)
    await log.load()
    metrics.tail_bytes.set_function(lambda: log.tail.size_bytes)
    metrics.tail_messages.set_function(lambda: log.tail.count)
    return Log(log, None)


class Leases(NamedTuple):
    """Lease store, its clock and the rate limits of producers. `wake` wakes parked receives of other gateways."""

    store: LeaseStore
    rates: RateLimitStore
    clock: Callable[[], datetime]
    wake: Callable[[str], Awaitable[None]]
    checks: Mapping[str, Callable[[], Awaitable[object]]]
    services: Callable[[LongPoll], Sequence["Service"]]


@contextlib.asynccontextmanager
async def open_leases(
    settings: Settings, engine: Engine | None, wall_ms: Callable[[], int] | None
) -> AsyncIterator[Leases]:
    """Open the configured lease store and close it at the end. `wall_ms` replaces its clock in tests."""
    max_clients = settings.group_defaults.max_clients
    if settings.leases.engine == "redis":
        async with _open_redis(settings.redis, max_clients, wall_ms) as leases:
            yield leases
        return
    embedded = _require(engine)
    store = SqliteLeaseStore(embedded, max_clients=max_clients)

    def clock() -> datetime:
        return instant(embedded.clock.now_ms())

    async def wake(_: str) -> None:
        """Do nothing: there is no other gateway."""

    yield Leases(store, LocalRateLimits(clock), clock, wake, checks={}, services=lambda _: ())


@contextlib.asynccontextmanager
async def _open_redis(
    settings: RedisSettings, max_clients: int, wall_ms: Callable[[], int] | None
) -> AsyncIterator[Leases]:
    try:
        # redis-py and hiredis are an optional extra.
        from mqgate.adapters.redis.client import RedisClient  # noqa: PLC0415
        from mqgate.adapters.redis.lease_store import RedisLeaseStore  # noqa: PLC0415
        from mqgate.adapters.redis.rate_limits import RedisRateLimits  # noqa: PLC0415
        from mqgate.adapters.redis.wake_ups import WakeUpSubscription  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingsInvalid(['[leases] engine: pip install "mqgate[redis]"']) from error

    redis = RedisClient(settings.url, timeout=settings.timeout.total_seconds())
    gateway = os.urandom(8).hex()
    store = RedisLeaseStore(redis, prefix=settings.prefix, gateway=gateway, max_clients=max_clients, clock=wall_ms)

    def listen(long_poll: LongPoll) -> list[Service]:
        def woken(group: str, client: str, at: int) -> None:
            long_poll.woken(group, client, instant(at) if at else None)

        return [WakeUpSubscription(redis, store.channel, gateway, woken, long_poll.missed)]

    try:
        try:
            await redis.connect()
        except Busy as error:
            # The client reconnects. Errors that a retry cannot solve are not Busy and end the start.
            _log.warning("Redis was unavailable at start", error=error.detail)
        yield Leases(
            store,
            RedisRateLimits(redis, prefix=settings.prefix, clock=wall_ms),
            store.now,
            store.wake,
            checks={"redis": redis.probe},
            services=listen,
        )
    finally:
        await store.close()
        await redis.close()


class Service(Protocol):
    """Background service of an open gateway."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class AlarmStores(NamedTuple):
    """Stores of alarms, of their settings, and of the reports of gateways."""

    alarms: AlarmStore
    settings: AlarmSettingsStore
    reports: GatewayReports


class Control(NamedTuple):
    """Stores of control data and timers, and the clock of due times.

    `jobs`: cleanup beyond `tidy` of the stores. `is_shared`: other gateways may change the data. The services then call
    their second argument after a change.
    """

    registry: RegistryStore
    timers: TimerStore
    dead_letters: DeadLetterStore
    idempotency: IdempotencyStore
    clock: Callable[[], datetime]
    sessions: SessionStore
    applications: ApplicationStore
    jobs: Sequence[Callable[[], Awaitable[object]]]
    checks: Mapping[str, Callable[[], Awaitable[object]]]
    is_shared: bool
    services: Callable[[TimerDispatcher, Callable[[], Awaitable[None]]], Sequence[Service]]
    alarms: AlarmStores


@contextlib.asynccontextmanager
async def open_control(
    settings: Settings, engine: Engine | None, wall_ms: Callable[[], int] | None
) -> AsyncIterator[Control]:
    """Open the configured control stores and close them at the end. `wall_ms` replaces their clock in tests."""
    window = settings.publish.idempotency_window
    if settings.control.engine == "postgres":
        async with _open_postgres(settings.postgres, window, wall_ms) as control:
            yield control
        return
    embedded = _require(engine)
    registry, timers = SqliteRegistryStore(embedded), SqliteTimerStore(embedded)
    is_log_elsewhere = settings.messages.engine != "sqlite"
    idempotency = SqliteIdempotencyStore(embedded, window, is_log_elsewhere=is_log_elsewhere)
    yield Control(
        registry,
        timers,
        SqliteDeadLetters(embedded),
        idempotency,
        clock=lambda: instant(embedded.clock.now_ms()),
        sessions=SqliteSessionStore(embedded),
        applications=SqliteApplicationStore(embedded),
        jobs=(),
        checks={"store": registry.version},
        is_shared=False,
        services=lambda _dispatcher, _refresh: (),
        alarms=AlarmStores(SqliteAlarmStore(embedded), SqliteAlarmSettings(embedded), SqliteGatewayReports(embedded)),
    )


@contextlib.asynccontextmanager
async def _open_postgres(
    settings: PostgresSettings, window: timedelta, wall_ms: Callable[[], int] | None
) -> AsyncIterator[Control]:
    try:
        # psycopg is an optional extra.
        from mqgate.adapters.postgres.alarm_settings import PostgresAlarmSettings  # noqa: PLC0415
        from mqgate.adapters.postgres.alarm_store import PostgresAlarmStore  # noqa: PLC0415
        from mqgate.adapters.postgres.application_store import PostgresApplicationStore  # noqa: PLC0415
        from mqgate.adapters.postgres.connections import Timeouts  # noqa: PLC0415
        from mqgate.adapters.postgres.dead_letters import PostgresDeadLetters  # noqa: PLC0415
        from mqgate.adapters.postgres.gateway_reports import PostgresGatewayReports  # noqa: PLC0415
        from mqgate.adapters.postgres.idempotency import PostgresIdempotencyStore  # noqa: PLC0415
        from mqgate.adapters.postgres.registry_store import PostgresRegistryStore  # noqa: PLC0415
        from mqgate.adapters.postgres.registry_watch import RegistryWatch  # noqa: PLC0415
        from mqgate.adapters.postgres.session import open_postgres  # noqa: PLC0415
        from mqgate.adapters.postgres.session_store import PostgresSessionStore  # noqa: PLC0415
        from mqgate.adapters.postgres.timer_store import PostgresTimerStore  # noqa: PLC0415
        from mqgate.adapters.postgres.timer_watch import TimerWatch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingsInvalid(['[control] engine: pip install "mqgate[postgres]"']) from error

    timeouts = Timeouts(
        connect=settings.connect_timeout,
        checkout=settings.checkout_timeout,
        statement=settings.statement_timeout,
    )
    async with open_postgres(
        settings.url,
        schema=settings.schema,
        min_size=settings.min_connections,
        max_size=settings.max_connections,
        timeouts=timeouts,
        lease=settings.gateway_lease,
        now=lambda: None if wall_ms is None else instant(wall_ms()),
    ) as opened:
        database, presence = opened.database, opened.presence
        timers = PostgresTimerStore(database, presence)
        sending = settings.longest_publish
        idempotency = PostgresIdempotencyStore(database, presence, window, sending=sending)

        def watch(dispatcher: TimerDispatcher, refresh: Callable[[], Awaitable[None]]) -> list[Service]:
            return [
                TimerWatch(timers, on_due=dispatcher.wake_by, on_abandoned=dispatcher.recover_soon),
                RegistryWatch(database, refresh),
            ]

        yield Control(
            PostgresRegistryStore(database),
            timers,
            PostgresDeadLetters(database),
            idempotency,
            clock=opened.clock.now if wall_ms is None else lambda: instant(wall_ms()),
            sessions=PostgresSessionStore(database),
            applications=PostgresApplicationStore(database),
            jobs=(presence.tidy,),
            checks={"postgres": database.probe},
            is_shared=True,
            services=watch,
            alarms=AlarmStores(
                PostgresAlarmStore(database), PostgresAlarmSettings(database), PostgresGatewayReports(database)
            ),
        )


def channel_senders() -> Mapping[ChannelKind, ChannelSender]:
    """Return the sender of each kind of channel that is installed."""
    senders: dict[ChannelKind, ChannelSender] = {ChannelKind.WEBHOOK: WebhookSender()}
    if find_spec("apprise") is not None:
        senders[ChannelKind.APPRISE] = AppriseSender()
    return senders
