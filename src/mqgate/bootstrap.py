"""Puts the parts together: the only file that names concrete adapters."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import structlog
from starlette.routing import Router

from mqgate.adapters.rocketmq.connecting import client_of, wire_names
from mqgate.adapters.rocketmq.message_log import RocketMQMessageLog
from mqgate.adapters.rocketmq.offset_mirror import RocketMQOffsetMirror
from mqgate.adapters.sqlite.dead_letters import SqliteDeadLetters
from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.idempotency import SqliteIdempotencyStore
from mqgate.adapters.sqlite.janitor import Janitor
from mqgate.adapters.sqlite.lease_store import SqliteLeaseStore
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.registry_store import SqliteRegistryStore
from mqgate.adapters.sqlite.retention import Retention
from mqgate.adapters.sqlite.timer_store import SqliteTimerStore
from mqgate.consumption.acknowledge import Acknowledger
from mqgate.consumption.group_log import GroupLog
from mqgate.consumption.long_poll import LongPoll
from mqgate.consumption.mirror import Mirror
from mqgate.consumption.positions import Positions
from mqgate.consumption.receive import Receiver
from mqgate.consumption.redrive import Redriver
from mqgate.consumption.rescue import Undertaker
from mqgate.control.access.service import Access
from mqgate.control.registry.directory import CachedDirectory
from mqgate.control.registry.model import Defaults, GroupSpec, ProducerSpec, TopicSpec
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import Busy, MqgateError, NotFound
from mqgate.core.lease import Verb
from mqgate.core.message import instant
from mqgate.core.receipt import ReceiptKeys
from mqgate.delay.mover import Mover
from mqgate.http import app
from mqgate.http.compat.mq.dialect import MqDialect
from mqgate.http.door import Door
from mqgate.http.json_input import explain
from mqgate.http.native.dead_letters import DeadLetterApi
from mqgate.http.native.envelope import Reader
from mqgate.http.native.health import HealthApi
from mqgate.http.native.messages import MessagesApi
from mqgate.http.native.operate import OperateApi
from mqgate.http.native.publish import PublishApi
from mqgate.http.native.queues import QueuesApi
from mqgate.http.native.receive import ReceiveApi
from mqgate.http.native.registry import RegistryApi
from mqgate.http.native.scheduled import ScheduledApi
from mqgate.ports.dead_letters import DeadLetterStore
from mqgate.ports.idempotency import IdempotencyStore
from mqgate.ports.registry_store import RegistryStore
from mqgate.ports.timer_store import TimerStore
from mqgate.production.once import Once
from mqgate.production.publish import Publisher
from mqgate.production.store import Storekeeper
from mqgate.rocketmq.client import Client
from mqgate.settings import PostgresSettings, RocketMQSettings, Settings, SettingsInvalid
from mqgate.telemetry.metrics import Metrics

_RECEIPT_KEY_LIFETIME = timedelta(days=30)
_RECEIPT_KEY_OVERLAP = timedelta(hours=24)
_MS = timedelta(milliseconds=1)
_DECLARED_AGAIN = 1.0
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway: its application, and what commands need of it."""

    app: Router
    registry: Registry
    access: Access
    health: HealthApi
    long_poll: LongPoll
    janitor: Janitor
    retention: Retention | None
    mirror: Mirror
    mover: Mover
    leases: SqliteLeaseStore


@contextlib.asynccontextmanager
async def gateway(settings: Settings, wall_ms: Callable[[], int] | None = None) -> AsyncIterator[Gateway]:
    """Open the engines and everything on them; close them at the end."""
    sqlite = settings.sqlite
    extra: dict[str, Any] = {} if wall_ms is None else {"wall_ms": wall_ms}
    engine = Engine(Path(sqlite.directory), synchronous=sqlite.synchronous, most_bytes=sqlite.max_bytes, **extra)
    metrics = Metrics()
    log: _Log | None = None
    control = contextlib.AsyncExitStack()
    try:
        log = await _open_log(settings, engine, metrics)
        opened = await control.enter_async_context(_open_control(settings, engine, log))
        built = await _build(settings, engine, log, opened, metrics)
        is_declared = await declare(built.registry, settings)
        refuse_open_door(settings, built.access)
        await _recover(built.mover)
        services: list[_Service] = [built.janitor, built.mirror, built.mover, *opened.services(built.mover)]
        for service in services:
            service.start()
        declaring = None if is_declared else asyncio.create_task(_declare_later(built.registry, settings))
        try:
            yield built
        finally:
            if declaring is not None:
                declaring.cancel()
                await asyncio.wait((declaring,))
            for service in reversed(services):
                await service.stop()
    finally:
        await control.aclose()
        if log is not None:
            await log.close()
        await engine.close()


class _Log(NamedTuple):
    """Where messages lie, and what comes with it."""

    log: SqliteMessageLog | RocketMQMessageLog
    mirror: RocketMQOffsetMirror | None

    async def close(self) -> None:
        if isinstance(self.log, RocketMQMessageLog):
            await self.log.close()


async def _open_log(settings: Settings, engine: Engine, metrics: Metrics) -> _Log:
    if settings.log.engine == "rocketmq":
        client, wire = client_of(settings.rocketmq), wire_names(settings.rocketmq)
        broker_log = RocketMQMessageLog(
            client,
            wire=wire,
            cluster=settings.rocketmq.cluster,
            most_watched=settings.rocketmq.max_watched_queues,
            watched=metrics.watch_requests.inc,
        )
        return _Log(broker_log, RocketMQOffsetMirror(client, broker_log, wire))
    log = SqliteMessageLog(engine)
    await log.load()
    return _Log(log, None)


class _Service(Protocol):
    def start(self) -> None: ...

    async def stop(self) -> None: ...


class _Control(NamedTuple):
    """Control data and timers, wherever they lie; and the clock that due times are judged by."""

    registry: RegistryStore
    timers: TimerStore
    dead_letters: DeadLetterStore
    idempotency: IdempotencyStore
    clock: Callable[[], datetime]
    jobs: Sequence[Callable[[], Awaitable[object]]]
    checks: Mapping[str, Callable[[], Awaitable[object]]]
    services: Callable[[Mover], Sequence[_Service]]


@contextlib.asynccontextmanager
async def _open_control(settings: Settings, engine: Engine, log: _Log) -> AsyncIterator[_Control]:
    window = timedelta(seconds=settings.publish.idempotency_window)
    if settings.control.engine == "postgres":
        async with _open_postgres(settings.postgres, window) as control:
            yield control
        return
    registry, timers = SqliteRegistryStore(engine), SqliteTimerStore(engine)
    is_log_elsewhere = not isinstance(log.log, SqliteMessageLog)
    idempotency = SqliteIdempotencyStore(engine, window, is_log_elsewhere=is_log_elsewhere)
    yield _Control(
        registry,
        timers,
        SqliteDeadLetters(engine),
        idempotency,
        clock=lambda: instant(engine.clock.now_ms()),
        jobs=(timers.tidy, idempotency.tidy),
        checks={"store": registry.version},
        services=lambda _: (),
    )


@contextlib.asynccontextmanager
async def _open_postgres(settings: PostgresSettings, window: timedelta) -> AsyncIterator[_Control]:
    try:
        # With them comes psycopg, which is an extra.
        from mqgate.adapters.postgres.connecting import Timeouts  # noqa: PLC0415
        from mqgate.adapters.postgres.dead_letters import PostgresDeadLetters  # noqa: PLC0415
        from mqgate.adapters.postgres.idempotency import PostgresIdempotencyStore  # noqa: PLC0415
        from mqgate.adapters.postgres.opening import open_postgres  # noqa: PLC0415
        from mqgate.adapters.postgres.registry_store import PostgresRegistryStore  # noqa: PLC0415
        from mqgate.adapters.postgres.timer_store import PostgresTimerStore  # noqa: PLC0415
        from mqgate.adapters.postgres.timer_watch import TimerWatch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingsInvalid(['[control] engine: pip install "mqgate[postgres]"']) from error

    timeouts = Timeouts(
        connect=timedelta(seconds=settings.connect_timeout),
        checkout=timedelta(seconds=settings.checkout_timeout),
        statement=timedelta(seconds=settings.statement_timeout),
    )
    async with open_postgres(
        settings.url,
        schema=settings.schema,
        least=settings.min_connections,
        most=settings.max_connections,
        timeouts=timeouts,
        lease=timedelta(seconds=settings.gateway_lease),
    ) as opened:
        database, presence = opened.database, opened.presence
        timers = PostgresTimerStore(database, presence)
        sending = timedelta(seconds=settings.longest_publish)
        idempotency = PostgresIdempotencyStore(database, presence, window, sending=sending)

        def watch(mover: Mover) -> list[TimerWatch]:
            return [TimerWatch(timers, planned=mover.planned, abandoned=mover.recover_soon)]

        yield _Control(
            PostgresRegistryStore(database),
            timers,
            PostgresDeadLetters(database),
            idempotency,
            clock=opened.clock.now,
            jobs=(timers.tidy, idempotency.tidy, presence.tidy),
            checks={"postgres": database.probe},
            services=watch,
        )


def rocketmq_client(settings: RocketMQSettings) -> Client:
    """A client of the cluster alone, for commands that look at it without a gateway."""
    return client_of(settings)


async def _recover(mover: Mover) -> None:
    """Finish what a process that is gone had begun; while the brokers are away, the mover does it later."""
    try:
        await mover.recover()
    except Busy as error:
        mover.recover_later()
        _log.warning("scheduled messages are recovered later", error=error.detail)


async def _build(settings: Settings, engine: Engine, opened: _Log, control: _Control, metrics: Metrics) -> Gateway:
    def lease_clock() -> datetime:
        return instant(engine.clock.now_ms())

    log = opened.log
    leases = SqliteLeaseStore(engine, most_clients=settings.group_defaults.max_clients)
    store, timers, dead_letters, idempotency, clock = control[:5]
    directory = CachedDirectory(store)
    await directory.refresh()
    keys = ReceiptKeys(
        await store.receipt_keys(overlap_ms=_RECEIPT_KEY_OVERLAP // _MS, lifetime_ms=_RECEIPT_KEY_LIFETIME // _MS)
    )
    group_log = GroupLog(log)
    undertaker = Undertaker(group_log, leases, dead_letters, metrics)
    interval = timedelta(seconds=settings.rocketmq.mirror_interval)
    mirror = Mirror(opened.mirror, group_log, leases, directory, interval)
    receiver = Receiver(group_log, leases, undertaker, metrics, mirror)
    long_poll = LongPoll(receiver, log, directory, metrics, clock=lease_clock, most_parked=settings.http.max_parked)

    def settled(scope: tuple[str, str], verb: Verb) -> None:
        long_poll.settled(scope, verb)
        mirror.touched(scope[0])

    acknowledger = Acknowledger(leases, undertaker, keys, settled)
    positions = Positions(group_log, leases, undertaker, mirror)
    mover = Mover(timers, log, metrics, clock)
    storekeeper = Storekeeper(log, timers, mover.planned, metrics)
    publisher = Publisher(storekeeper, Once(storekeeper, idempotency), clock)

    async def open_group(group: Group) -> None:
        # A broadcast client's place is made when it first comes.
        if group.mode is not Mode.BROADCAST:
            await receiver.open(group, "")
            await mirror.open(group)

    registry = Registry(
        store=store,
        directory=directory,
        log=log,
        leases=leases,
        dead_letters=dead_letters,
        timers=timers,
        idempotency=idempotency,
        open_group=open_group,
        close_group=mirror.forget,
        defaults=_defaults(settings),
        clock=clock,
        changed=long_poll.changed,
    )
    access = Access(store, directory, clock, may_be_open=is_loopback(settings.http.host))
    http = settings.http
    health = HealthApi(
        access=access,
        metrics=metrics,
        settings=http,
        engine=settings.log.engine,
        checks={**control.checks, "disk": engine.probe, "log": log.probe},
    )
    longest_delay = timedelta(seconds=settings.publish.longest_delay)
    reader = Reader(max_message_bytes=http.max_message_bytes, longest_delay=longest_delay, clock=clock)
    operations = [
        *PublishApi(registry, publisher, reader, http.max_batch).operations(),
        *ReceiveApi(
            registry=registry,
            receiver=receiver,
            long_poll=long_poll,
            acknowledger=acknowledger,
            metrics=metrics,
            settings=http,
        ).operations(),
        *MqDialect(
            registry=registry,
            publisher=publisher,
            consumer=receiver,
            long_poll=long_poll,
            acknowledger=acknowledger,
            positions=positions,
            leases=leases,
            log=log,
            access=access,
            metrics=metrics,
            http=http,
            settings=settings.mq,
            longest_delay=longest_delay,
            clock=clock,
        ).operations(),
        *OperateApi(
            registry=registry,
            store=store,
            positions=positions,
            leases=leases,
            clock=clock,
            changed=long_poll.changed,
        ).operations(),
        *DeadLetterApi(
            registry=registry,
            dead_letters=dead_letters,
            positions=positions,
            redriver=Redriver(log, dead_letters, long_poll.changed),
        ).operations(),
        *ScheduledApi(timers, mover, longest_delay, clock).operations(),
        *RegistryApi(registry, access, directory).operations(),
        *MessagesApi(registry, log, http).operations(),
        *QueuesApi(registry, log).operations(),
        *health.operations(),
    ]
    jobs: list[Callable[[], Awaitable[object]]] = [leases.tidy, *control.jobs]
    retention = Retention(engine, log, directory) if isinstance(log, SqliteMessageLog) else None
    if retention is not None:
        jobs.append(retention.run_once)
    door = Door(access, metrics, http, settings.log.requests)
    return Gateway(
        app=app.build(door, operations),
        registry=registry,
        access=access,
        health=health,
        long_poll=long_poll,
        janitor=Janitor(timedelta(seconds=settings.sqlite.tidy_interval), jobs),
        retention=retention,
        mirror=mirror,
        mover=mover,
        leases=leases,
    )


def _defaults(settings: Settings) -> Defaults:
    topic, group = settings.topic_defaults, settings.group_defaults
    is_embedded = settings.log.engine == "sqlite"
    return Defaults(
        queues=topic.queues,
        most_queues=topic.max_queues,
        retention=timedelta(seconds=topic.retention) if is_embedded else None,
        has_retention=is_embedded,
        visibility=timedelta(seconds=group.visibility),
        max_attempts=group.max_attempts,
        client_ttl=timedelta(seconds=group.client_ttl),
    )


async def declare(registry: Registry, settings: Settings) -> bool:
    """Apply the entries of mqgate.toml; what differs from what is stored is changed and told.

    False if the brokers were away: then the rest is to be applied later.
    """
    faults: list[str] = []
    is_done = True
    for kind, entries, spec_type, put in (
        ("topic", settings.topic, TopicSpec, registry.put_topic),
        ("producer", settings.producer, ProducerSpec, registry.put_producer),
        ("group", settings.group, GroupSpec, registry.put_group),
    ):
        for entry in entries:
            name = entry.get("name")
            if not isinstance(name, str):
                faults.append(f"[[{kind}]] needs a name")
                continue
            try:
                await _declare(registry, kind, name, entry, spec_type, put)
            except Busy as error:
                _log.warning("entry is registered later", kind=kind, name=name, error=error.detail)
                is_done = False
            except NotFound as error:
                # Of a topic that waits itself.
                faults += [f"[[{kind}]] {name}: {error.detail}"] if is_done else []
            except MqgateError as error:
                faults.append(f"[[{kind}]] {name}: {error.detail}")
    if faults:
        raise SettingsInvalid(faults)
    return is_done


async def _declare_later(registry: Registry, settings: Settings) -> None:
    """A gateway serves while its brokers are away; what it could not register follows when they are back."""
    is_done = False
    while not is_done:
        await asyncio.sleep(_DECLARED_AGAIN)
        try:
            is_done = await declare(registry, settings)
        except SettingsInvalid as error:
            _log.error("entries of the file are no good", error=str(error))
            return


async def _declare(
    registry: Registry, kind: str, name: str, entry: Mapping[str, Any], spec_type: Any, put: Any
) -> None:
    try:
        given = {key: value for key, value in entry.items() if key != "name"}
        # TOML has instants of its own; ours are text.
        spec = msgspec.convert(msgspec.to_builtins(given), spec_type)
    except msgspec.ValidationError as error:
        raise explain(error) from None
    try:
        before = getattr(registry, kind)(name)
    except MqgateError:
        before = None
    after, is_new = await put(name, spec, "mqgate.toml")
    if is_new:
        _log.info("entry registered", kind=kind, name=name)
    elif after != before:
        old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
        changed = {member: [old[member], new[member]] for member in new if old[member] != new[member]}
        _log.warning("entry differed from the file and was changed", kind=kind, name=name, changed=changed)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_open_door(settings: Settings, access: Access) -> None:
    """Without a key everybody may do everything: only on loopback."""
    host = settings.http.host
    if access.is_open and not is_loopback(host):
        remedy = "serve on 127.0.0.1 first and make one there with `mqgate key create --admin`"
        raise SettingsInvalid([f"[http] host {host} is not loopback and there is no key: {remedy}"])


async def demo(registry: Registry) -> None:
    """Something to try, on an empty data directory."""
    if registry.is_used:
        return
    actor = "demo"
    await registry.put_topic("demo", TopicSpec(queues=8), actor)
    await asyncio.gather(
        registry.put_producer("demo-producer", ProducerSpec(topic="demo"), actor),
        registry.put_group("demo-workers", GroupSpec(topic="demo"), actor),
        registry.put_group("demo-queue", GroupSpec(topic="demo", mode=Mode.QUEUE), actor),
        registry.put_group("demo-broadcast", GroupSpec(topic="demo", mode=Mode.BROADCAST), actor),
    )
