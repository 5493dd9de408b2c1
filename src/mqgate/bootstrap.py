"""Assembles the gateway. Only this file and engines.py name concrete adapters."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.retention import SqliteRetention
from mqgate.consumption.acknowledge import Acknowledger
from mqgate.consumption.dead_letters import DeadLetterWriter
from mqgate.consumption.group_log import GroupLog
from mqgate.consumption.lease_state import LeaseStateInitializer
from mqgate.consumption.long_poll import LongPoll
from mqgate.consumption.offset_mirror import OffsetMirrorService
from mqgate.consumption.pending_notices import PendingNotices
from mqgate.consumption.positions import PositionService
from mqgate.consumption.receive import Receiver
from mqgate.consumption.redrive import RedriveNotifier, Redriver
from mqgate.consumption.service import ConsumptionService
from mqgate.control.access.service import Access
from mqgate.control.janitor import Janitor
from mqgate.control.registry.directory import CachedDirectory, differing
from mqgate.control.registry.follower import RegistryFollower
from mqgate.control.registry.model import Defaults, GroupSpec, ProducerSpec, TopicSpec
from mqgate.control.registry.service import Registry
from mqgate.control.retention import Retention
from mqgate.core.addresses import is_loopback
from mqgate.core.entries import Mode, Snapshot
from mqgate.core.errors import Busy
from mqgate.core.events import EVENTS_TOPIC
from mqgate.core.receipt import KeyRotationPolicy, ReceiptKeys
from mqgate.declared import declare, declare_later
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.engines import Control, Leases, Log, Service, open_control, open_engine, open_leases, open_log
from mqgate.events.lag_samples import LagSamples
from mqgate.events.recorder import EventRecorder
from mqgate.events.writer import EventWriter
from mqgate.http import app
from mqgate.http.app import App
from mqgate.http.compat.mq.dialect import MqDialect
from mqgate.http.middleware import RequestMiddleware
from mqgate.http.native.dead_letters import DeadLetterApi
from mqgate.http.native.envelope import EnvelopeParser
from mqgate.http.native.health import HealthApi
from mqgate.http.native.messages import MessagesApi
from mqgate.http.native.operate import OperateApi
from mqgate.http.native.publish import PublishApi
from mqgate.http.native.queues import QueuesApi
from mqgate.http.native.receive import ReceiveApi
from mqgate.http.native.registry import RegistryApi
from mqgate.http.native.replay import ReplayApi
from mqgate.http.native.scheduled import ScheduledApi
from mqgate.http.native.stats import StatsApi
from mqgate.http.routes import Apis, route_table
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import MessageLog
from mqgate.production.idempotency import IdempotentPublisher
from mqgate.production.message_writer import MessageWriter
from mqgate.production.rate_limiter import ProducerRateLimiter
from mqgate.production.service import ProductionService
from mqgate.settings import RedisSettings, RocketMQSettings, Settings, SettingsInvalid
from mqgate.stats.engine import open_stats
from mqgate.stats.watch import PipelineWatch
from mqgate.telemetry.loop_lag import LoopLag
from mqgate.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mqgate.adapters.redis.report import RedisReport
    from mqgate.rocketmq.client import RocketMQClient

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway: its application, and the parts that commands use."""

    app: App
    metrics: Metrics
    registry: Registry
    access: Access
    production: ProductionService
    consumption: ConsumptionService
    health: HealthApi
    long_poll: LongPoll
    janitor: Janitor
    retention: Retention | None
    mirror: OffsetMirrorService
    mover: TimerDispatcher
    leases: LeaseStore
    follower: RegistryFollower
    events: EventWriter
    lag_samples: LagSamples


@contextlib.asynccontextmanager
async def gateway(settings: Settings, wall_ms: Callable[[], int] | None = None) -> AsyncIterator[Gateway]:
    """Open the stores, assemble the gateway and start its background services; stop and close them at the end."""
    engine = open_engine(settings, wall_ms)
    metrics = Metrics()
    telling = settings.events
    recorder = EventRecorder(metrics, wall_ms or _wall_ms, max_rows=telling.max_buffered, is_on=telling.enabled)
    log: Log | None = None
    control = contextlib.AsyncExitStack()
    try:
        log = await open_log(settings, engine, metrics)
        opened = await control.enter_async_context(open_control(settings, engine, log, wall_ms))
        leases = await control.enter_async_context(open_leases(settings, engine, wall_ms))
        built = await _build(settings, engine, log, opened, leases, metrics, recorder)
        is_declared = await declare(built.registry, settings)
        refuse_open_door(settings, built.access)
        await _recover(built.mover)
        services: list[Service] = [
            # Stopped last, because it writes the events of the others.
            *((built.events, built.lag_samples) if telling.enabled else ()),
            LoopLag(metrics),
            built.janitor,
            built.mirror,
            built.mover,
            *opened.services(built.mover, built.follower.refresh),
            *leases.services(built.long_poll),
        ]
        for service in services:
            service.start()
        declaring = None if is_declared else asyncio.create_task(declare_later(built.registry, settings))
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
        if engine is not None:
            await engine.close()


def rocketmq_client(settings: RocketMQSettings) -> "RocketMQClient":
    """Return a client of the RocketMQ cluster, for commands that inspect it without a gateway."""
    from mqgate.adapters.rocketmq.client_factory import client_of  # noqa: PLC0415 - the embedded engine needs none

    return client_of(settings)


async def redis_health(settings: RedisSettings) -> "RedisReport":
    """Return a report of Redis, for commands without a gateway. Raise if Redis cannot be reached."""
    try:
        from mqgate.adapters.redis.report import redis_report  # noqa: PLC0415 - what it needs is an extra
    except ModuleNotFoundError as error:
        raise SettingsInvalid(['[leases] engine: pip install "mqgate[redis]"']) from error
    return await redis_report(settings.url, settings.prefix, max_wait=settings.timeout.total_seconds())


async def _recover(mover: TimerDispatcher) -> None:
    """Recover the timers of a stopped process; if the brokers are unavailable, the dispatcher does it later."""
    try:
        await mover.recover()
    except Busy as error:
        mover.recover_later()
        _log.warning("recovery of scheduled messages postponed", error=error.detail)


async def _build(
    settings: Settings,
    engine: Engine | None,
    opened: Log,
    control: Control,
    leasing: Leases,
    metrics: Metrics,
    recorder: EventRecorder,
) -> Gateway:
    log = opened.log
    leases = leasing.store
    store, timers, dead_letters, idempotency, clock = control[:5]
    directory = CachedDirectory(store)
    await directory.refresh()
    keys = ReceiptKeys(await store.receipt_keys(KeyRotationPolicy()))

    async def reload_keys() -> None:
        keys.update_keys(await store.receipt_keys(KeyRotationPolicy()))

    follower = RegistryFollower(directory.refresh, reload_keys)
    catch_up = follower.catch_up if control.is_shared else _no_catch_up
    group_log = GroupLog(log)
    notices = PendingNotices()
    dead_letter_writer = DeadLetterWriter(group_log, leases, dead_letters, metrics, recorder, notices)
    interval = settings.rocketmq.mirror_interval
    mirror = OffsetMirrorService(opened.mirror, group_log, leases, directory, interval)
    opener = LeaseStateInitializer(group_log, leases, mirror)
    receiver = Receiver(group_log, leases, dead_letter_writer, metrics, mirror, opener, recorder)
    http = settings.http
    long_poll = LongPoll(
        receiver,
        log,
        directory,
        metrics,
        recorder,
        notices,
        clock=leasing.clock,
        max_parked=http.max_parked,
        max_parked_per_key=http.max_parked_per_key,
    )

    def replaced(before: Snapshot, after: Snapshot) -> None:
        for name in differing(before.groups, after.groups):
            long_poll.changed(name)
        # A single gateway knows all changes. A needless query could wait for a hanging broker.
        for name in differing(before.topics, after.topics) if control.is_shared else ():
            opened.invalidate_topic(name)

    directory.follow(replaced)
    consumption = ConsumptionService(
        long_poll=long_poll,
        notices=notices,
        acknowledger=Acknowledger(leases, dead_letter_writer, keys, catch_up, recorder),
        keys=keys,
        mirror=mirror,
        metrics=metrics,
        recorder=recorder,
    )
    positions = PositionService(group_log, leases, dead_letter_writer, mirror, opener, recorder)
    mover = TimerDispatcher(timers, log, metrics, recorder, clock)
    redriven = RedriveNotifier(positions, leasing.wake, long_poll).notify
    registry = Registry(
        store=store,
        directory=directory,
        log=log,
        leases=leases,
        dead_letters=dead_letters,
        timers=timers,
        idempotency=idempotency,
        open_group=opener.register,
        close_group=mirror.forget,
        defaults=_defaults(settings),
        clock=clock,
        catch_up=catch_up,
    )
    writer = MessageWriter(log, timers, mover.planned, metrics, recorder)
    production = ProductionService(
        registry=registry,
        log=log,
        writer=writer,
        idempotent=IdempotentPublisher(writer, idempotency),
        limiter=ProducerRateLimiter(leasing.rates, clock),
        metrics=metrics,
        recorder=recorder,
    )
    access = Access(store, directory, clock, may_be_open=is_loopback(settings.http.host), catch_up=catch_up)
    disk = {} if engine is None else {"disk": engine.probe}
    health = HealthApi(
        access=access,
        metrics=metrics,
        settings=http,
        engine=settings.messages.engine,
        checks={**control.checks, **leasing.checks, **disk, "log": log.probe},
    )
    longest_delay = settings.publish.longest_delay
    parser = EnvelopeParser(max_message_bytes=http.max_message_bytes, longest_delay=longest_delay, clock=clock)
    apis = Apis(
        publish=PublishApi(production, parser, http),
        receive=ReceiveApi(registry, consumption, http),
        mq=MqDialect(
            registry=registry,
            production=production,
            consumption=consumption,
            positions=positions,
            leases=leases,
            log=log,
            access=access,
            changed=long_poll.changed,
            http=http,
            settings=settings.mq,
            longest_delay=longest_delay,
            clock=clock,
        ),
        operate=OperateApi(
            registry=registry,
            store=store,
            positions=positions,
            leases=leases,
            clock=clock,
            changed=long_poll.changed,
        ),
        dead_letters=DeadLetterApi(
            registry=registry,
            dead_letters=dead_letters,
            positions=positions,
            redriver=Redriver(log, dead_letters, redriven),
        ),
        replay=ReplayApi(
            registry=registry, log=log, service=production, parser=parser, settings=http, changed=redriven
        ),
        scheduled=ScheduledApi(timers, mover, recorder, longest_delay, clock),
        registry=RegistryApi(registry, access, directory),
        messages=MessagesApi(registry, log, http),
        queues=QueuesApi(registry, log),
        stats=StatsApi(partial(open_stats, settings, is_writing=False), clock),
        health=health,
    )
    retention = _retention(settings, engine, log, directory)
    tidying = [] if retention is None else [retention.run_once]
    pipelines = PipelineWatch(partial(open_stats, settings, is_writing=False), metrics)
    jobs: list[Callable[[], Awaitable[object]]] = [
        reload_keys,
        leases.tidy,
        timers.tidy,
        idempotency.tidy,
        *control.jobs,
        *tidying,
        pipelines.run_once,
    ]
    lag_samples, events = _event_parts(settings, log, directory, recorder, positions, metrics)
    middleware = RequestMiddleware(access, metrics, http, settings.logging.requests, parked=lambda: long_poll.parked)
    return Gateway(
        app=app.build(middleware, route_table(apis, http)),
        metrics=metrics,
        registry=registry,
        access=access,
        production=production,
        consumption=consumption,
        health=health,
        long_poll=long_poll,
        janitor=Janitor(settings.sqlite.tidy_interval, jobs),
        retention=retention,
        mirror=mirror,
        mover=mover,
        leases=leases,
        follower=follower,
        events=events,
        lag_samples=lag_samples,
    )


def _event_parts(
    settings: Settings,
    log: MessageLog,
    directory: CachedDirectory,
    recorder: EventRecorder,
    positions: PositionService,
    metrics: Metrics,
) -> tuple[LagSamples, EventWriter]:
    """Return the lag sampler and the writer of events."""
    telling = settings.events
    interval = telling.lag_interval
    lag_samples = LagSamples(directory, recorder, positions.standings, interval=interval)
    events = EventWriter(
        log,
        recorder,
        metrics,
        lag_samples.mark_active,
        gateway=gateway_name(settings),
        queues=telling.queues,
        interval=telling.flush_interval,
    )
    return lag_samples, events


def gateway_name(settings: Settings) -> str:
    """Return the name of this gateway in events."""
    return settings.events.gateway or f"{socket.gethostname()}:{settings.http.port}"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _retention(
    settings: Settings, engine: Engine | None, log: MessageLog, directory: CachedDirectory
) -> Retention | None:
    if engine is None or not isinstance(log, SqliteMessageLog):
        return None
    kept = settings.events.retention
    return Retention(SqliteRetention(engine, log), directory, own={EVENTS_TOPIC: kept})


async def _no_catch_up() -> None:
    """Do nothing: no other gateway changes the registry."""


def _defaults(settings: Settings) -> Defaults:
    topic, group = settings.topic_defaults, settings.group_defaults
    is_embedded = settings.messages.engine == "sqlite"
    return Defaults(
        queues=topic.queues,
        max_queues=topic.max_queues,
        retention=topic.retention if is_embedded else None,
        has_retention=is_embedded,
        visibility=group.visibility,
        max_attempts=group.max_attempts,
        client_ttl=group.client_ttl,
    )


def refuse_open_door(settings: Settings, access: Access) -> None:
    """Raise SettingsInvalid if the gateway has no key and listens beyond loopback."""
    host = settings.http.host
    if access.is_open and not is_loopback(host):
        remedy = "serve on 127.0.0.1 first and make one there with `mqgate key create --admin`"
        raise SettingsInvalid([f"[http] host {host} is not loopback and there is no key: {remedy}"])


async def demo(registry: Registry) -> bool:
    """Register a demo topic in an empty data directory; return whether it is registered."""
    if registry.is_used:
        return "demo" in registry.snapshot.topics and "demo-workers" in registry.snapshot.groups
    actor = "demo"
    await registry.put_topic("demo", TopicSpec(queues=8), actor)
    await asyncio.gather(
        registry.put_producer("demo-producer", ProducerSpec(topic="demo"), actor),
        registry.put_group("demo-workers", GroupSpec(topic="demo"), actor),
        registry.put_group("demo-queue", GroupSpec(topic="demo", mode=Mode.QUEUE), actor),
        registry.put_group("demo-broadcast", GroupSpec(topic="demo", mode=Mode.BROADCAST), actor),
    )
    return True
