"""Opens the stores of a gateway, assembles its components, and runs its background services."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.retention import SqliteRetention
from mqgate.bootstrap.access import build_access
from mqgate.bootstrap.admin_key import ensure_admin_key
from mqgate.bootstrap.alerts import Alarms, build_alarms
from mqgate.bootstrap.apis import build_apis
from mqgate.bootstrap.approvals import build_approvals
from mqgate.bootstrap.consumption import Consumption, build_consumption
from mqgate.bootstrap.opened import ControlData, Opened, load_control_data
from mqgate.consumption.long_poll import LongPoll
from mqgate.consumption.offset_mirror import OffsetMirrorService
from mqgate.consumption.positions import PositionService
from mqgate.consumption.service import ConsumptionService
from mqgate.control.access.service import Access, Credentials
from mqgate.control.approvals.applier import ApplicationApplier
from mqgate.control.janitor import Janitor
from mqgate.control.registry.directory import CachedDirectory, differing
from mqgate.control.registry.follower import RegistryFollower
from mqgate.control.registry.model import Defaults
from mqgate.control.registry.service import Registry
from mqgate.control.retention import Retention
from mqgate.core.addresses import is_loopback
from mqgate.core.entries import Snapshot
from mqgate.core.errors import Busy
from mqgate.core.events import EVENTS_TOPIC
from mqgate.declared import declare, declare_later
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.engines import Log, Service, open_control, open_engine, open_leases, open_log
from mqgate.events.lag_samples import LagSamples
from mqgate.events.recorder import EventRecorder
from mqgate.events.writer import EventWriter
from mqgate.http import app
from mqgate.http.app import App
from mqgate.http.middleware import RequestMiddleware
from mqgate.http.native.health import HealthApi
from mqgate.http.routes import route_table
from mqgate.ports.lease_store import LeaseStore
from mqgate.production.idempotency import IdempotentPublisher
from mqgate.production.message_writer import MessageWriter
from mqgate.production.rate_limiter import ProducerRateLimiter
from mqgate.production.service import ProductionService
from mqgate.settings import Settings, SettingsInvalid
from mqgate.stats.engine import open_stats
from mqgate.stats.watch import PipelineWatch
from mqgate.telemetry.loop_lag import LoopLag
from mqgate.telemetry.metrics import Metrics

__all__ = ["Gateway", "gateway", "gateway_name", "refuse_open_door"]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway: its application, and the parts that commands use."""

    app: App
    metrics: Metrics
    registry: Registry
    access: Access
    credentials: Credentials
    applier: ApplicationApplier
    production: ProductionService
    consumption: ConsumptionService
    health: HealthApi
    long_poll: LongPoll
    janitor: Janitor
    retention: Retention | None
    mirror: OffsetMirrorService
    dispatcher: TimerDispatcher
    leases: LeaseStore
    follower: RegistryFollower
    events: EventWriter
    lag_samples: LagSamples
    alarms: Alarms


@contextlib.asynccontextmanager
async def gateway(settings: Settings, wall_ms: Callable[[], int] | None = None) -> AsyncIterator[Gateway]:
    """Open the stores, assemble the gateway and start its background services; stop and close them at the end."""
    engine = open_engine(settings, wall_ms)
    metrics = Metrics()
    telling = settings.events
    recorder = EventRecorder(metrics, wall_ms or _wall_ms, max_rows=telling.max_buffered, is_on=telling.enabled)
    log: Log | None = None
    stores = contextlib.AsyncExitStack()
    try:
        log = await open_log(settings, engine, metrics)
        control = await stores.enter_async_context(open_control(settings, engine, wall_ms))
        leases = await stores.enter_async_context(open_leases(settings, engine, wall_ms))
        built = await _build(
            Opened(
                settings=settings,
                engine=engine,
                log=log,
                control=control,
                leases=leases,
                metrics=metrics,
                recorder=recorder,
            )
        )
        is_declared = await declare(built.registry, settings)
        await ensure_admin_key(settings.admin, built.credentials.keys, built.registry.snapshot)
        refuse_open_door(settings, built.access)
        await _recover(built.dispatcher)
        services: list[Service] = [
            # Stopped last, because it writes the events of the others.
            *((built.events, built.lag_samples) if telling.enabled else ()),
            LoopLag(metrics),
            *((built.alarms.lease, built.alarms.evaluator) if settings.alarms.enabled else ()),
            built.janitor,
            built.mirror,
            built.dispatcher,
            built.applier,
            *control.services(built.dispatcher, built.follower.refresh),
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
        await stores.aclose()
        if log is not None:
            await log.close()
        if engine is not None:
            await engine.close()


async def _recover(dispatcher: TimerDispatcher) -> None:
    """Recover the timers of a stopped process; if the brokers are unavailable, the dispatcher does it later."""
    try:
        await dispatcher.recover()
    except Busy as error:
        dispatcher.recover_later()
        _log.warning("recovery of scheduled messages postponed", error=error.detail)


async def _build(opened: Opened) -> Gateway:
    settings, control = opened.settings, opened.control
    data = await load_control_data(control)
    consumption = build_consumption(opened, data)
    data.directory.follow(partial(_entries_changed, opened, consumption.long_poll))
    dispatcher = TimerDispatcher(control.timers, opened.log.log, opened.metrics, opened.recorder, control.clock)
    registry = _registry(opened, data, consumption)
    production = _production(opened, registry, dispatcher)
    access, credentials = build_access(settings, control, data.directory, data.catch_up)
    approvals, applier = build_approvals(opened, registry, consumption, credentials)
    alarms = build_alarms(opened, registry, data.directory, consumption.positions)
    apis = build_apis(
        opened,
        alarms=alarms.service,
        registry=registry,
        directory=data.directory,
        access=access,
        credentials=credentials,
        approvals=approvals,
        production=production,
        consumption=consumption,
        dispatcher=dispatcher,
    )
    retention = _retention(opened, data.directory)
    lag_samples, events = _event_parts(opened, data.directory, consumption.positions)
    middleware = RequestMiddleware(
        access,
        opened.metrics,
        settings.http,
        settings.logging.requests,
        parked=lambda: consumption.long_poll.parked,
    )
    return Gateway(
        app=app.build(middleware, route_table(apis, settings.http)),
        metrics=opened.metrics,
        registry=registry,
        access=access,
        credentials=credentials,
        applier=applier,
        production=production,
        consumption=consumption.service,
        health=apis.health,
        long_poll=consumption.long_poll,
        janitor=_janitor(opened, data, retention, credentials),
        retention=retention,
        mirror=consumption.mirror,
        dispatcher=dispatcher,
        leases=opened.leases.store,
        follower=data.follower,
        events=events,
        lag_samples=lag_samples,
        alarms=alarms,
    )


def _entries_changed(opened: Opened, long_poll: LongPoll, before: Snapshot, after: Snapshot) -> None:
    for name in differing(before.groups, after.groups):
        long_poll.changed(name)
    # A single gateway knows all changes. A needless query could wait for a hanging broker.
    for name in differing(before.topics, after.topics) if opened.control.is_shared else ():
        opened.log.invalidate_topic(name)


def _registry(opened: Opened, data: ControlData, consumption: Consumption) -> Registry:
    store, timers, dead_letters, idempotency, clock = opened.control[:5]
    return Registry(
        store=store,
        directory=data.directory,
        log=opened.log.log,
        leases=opened.leases.store,
        dead_letters=dead_letters,
        timers=timers,
        idempotency=idempotency,
        open_group=consumption.lease_state.register,
        close_group=consumption.mirror.forget,
        defaults=_defaults(opened.settings),
        clock=clock,
        catch_up=data.catch_up,
    )


def _production(opened: Opened, registry: Registry, dispatcher: TimerDispatcher) -> ProductionService:
    control = opened.control
    writer = MessageWriter(opened.log.log, control.timers, dispatcher.wake_by, opened.metrics, opened.recorder)
    return ProductionService(
        registry=registry,
        log=opened.log.log,
        writer=writer,
        idempotent=IdempotentPublisher(writer, control.idempotency),
        limiter=ProducerRateLimiter(opened.leases.rates, control.clock),
        metrics=opened.metrics,
        recorder=opened.recorder,
    )


def _janitor(opened: Opened, data: ControlData, retention: Retention | None, credentials: Credentials) -> Janitor:
    settings, control = opened.settings, opened.control
    pipelines = PipelineWatch(partial(open_stats, settings, is_writing=False), opened.metrics)
    jobs: list[Callable[[], Awaitable[object]]] = [
        data.reload_keys,
        opened.leases.store.tidy,
        control.timers.tidy,
        control.idempotency.tidy,
        partial(control.alarms.alarms.tidy, settings.alarms.retention),
        credentials.sessions.tidy,
        *control.jobs,
        *([] if retention is None else [retention.run_once]),
        pipelines.run_once,
    ]
    return Janitor(settings.sqlite.tidy_interval, jobs)


def _event_parts(
    opened: Opened, directory: CachedDirectory, positions: PositionService
) -> tuple[LagSamples, EventWriter]:
    """Return the lag sampler and the writer of events."""
    options = opened.settings.events
    lag_samples = LagSamples(directory, opened.recorder, positions.standings, interval=options.lag_interval)
    events = EventWriter(
        opened.log.log,
        opened.recorder,
        opened.metrics,
        lag_samples.mark_active,
        gateway=gateway_name(opened.settings),
        queues=options.queues,
        interval=options.flush_interval,
    )
    return lag_samples, events


def gateway_name(settings: Settings) -> str:
    """Return the name of this gateway in events."""
    return settings.events.gateway or f"{socket.gethostname()}:{settings.http.port}"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _retention(opened: Opened, directory: CachedDirectory) -> Retention | None:
    engine, log = opened.engine, opened.log.log
    if engine is None or not isinstance(log, SqliteMessageLog):
        return None
    own = {EVENTS_TOPIC: opened.settings.events.retention}
    return Retention(SqliteRetention(engine, log), directory, own=own)


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
    """Raise SettingsInvalid if the gateway has neither a key nor an account, and listens beyond loopback."""
    host = settings.http.host
    if access.is_open and not is_loopback(host):
        remedy = "create one with `mqgate key create --admin --local`, or set [admin] key_file"
        raise SettingsInvalid([f"[http] host {host} is not loopback and there is no key or account: {remedy}"])
