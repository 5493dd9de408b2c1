"""Assembles the handlers of the HTTP API."""

from functools import partial

from mqgate.bootstrap.consumption import Consumption
from mqgate.bootstrap.opened import Opened
from mqgate.consumption.redrive import RedriveNotifier, Redriver
from mqgate.control.access.service import Access, Credentials
from mqgate.control.alerts.service import AlarmService
from mqgate.control.approvals.service import Approvals
from mqgate.control.registry.directory import CachedDirectory
from mqgate.control.registry.service import Registry
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.http.compat.mq.dialect import MqDialect
from mqgate.http.native.access import AccessApi
from mqgate.http.native.accounts import AccountsApi
from mqgate.http.native.alarm_channels import AlarmChannelsApi
from mqgate.http.native.alarms import AlarmsApi
from mqgate.http.native.applications import ApplicationsApi
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
from mqgate.http.routes import Apis
from mqgate.production.service import ProductionService
from mqgate.stats.engine import open_stats

__all__ = ["build_apis"]


def build_apis(
    opened: Opened,
    *,
    registry: Registry,
    directory: CachedDirectory,
    access: Access,
    credentials: Credentials,
    approvals: Approvals,
    production: ProductionService,
    consumption: Consumption,
    dispatcher: TimerDispatcher,
    alarms: AlarmService,
) -> Apis:
    settings, http, leases, log = opened.settings, opened.settings.http, opened.leases.store, opened.log.log
    store, timers, dead_letters, _, clock = opened.control[:5]
    positions, changed = consumption.positions, consumption.long_poll.changed
    redriven = RedriveNotifier(positions, opened.leases.wake, consumption.long_poll).notify
    longest_delay = settings.publish.longest_delay
    parser = EnvelopeParser(max_message_bytes=http.max_message_bytes, longest_delay=longest_delay, clock=clock)
    return Apis(
        publish=PublishApi(production, parser, http),
        receive=ReceiveApi(registry, consumption.service, http),
        mq=MqDialect(
            registry=registry,
            production=production,
            consumption=consumption.service,
            positions=positions,
            leases=leases,
            log=log,
            access=access,
            changed=changed,
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
            changed=changed,
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
        scheduled=ScheduledApi(timers, dispatcher, opened.recorder, longest_delay, clock, directory),
        registry=RegistryApi(registry, credentials.keys, directory),
        messages=MessagesApi(registry, log, http),
        queues=QueuesApi(registry, log),
        alarms=AlarmsApi(alarms, opened.control.alarms.alarms),
        alarm_channels=AlarmChannelsApi(alarms, opened.control.alarms.alarms),
        stats=StatsApi(partial(open_stats, settings, is_writing=False), clock),
        health=_health(opened, access),
        access=AccessApi(credentials.sessions, credentials.accounts, settings.sessions),
        applications=ApplicationsApi(approvals),
        accounts=AccountsApi(credentials.accounts, credentials.sessions, directory),
    )


def _health(opened: Opened, access: Access) -> HealthApi:
    disk = {} if opened.engine is None else {"disk": opened.engine.probe}
    return HealthApi(
        access=access,
        metrics=opened.metrics,
        settings=opened.settings.http,
        engine=opened.settings.messages.engine,
        checks={**opened.control.checks, **opened.leases.checks, **disk, "log": opened.log.log.probe},
    )
