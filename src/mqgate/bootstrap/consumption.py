"""Assembles the parts that deliver messages to consumers."""

from typing import NamedTuple

from mqgate.bootstrap.opened import ControlData, Opened
from mqgate.consumption.acknowledge import Acknowledger
from mqgate.consumption.dead_letters import DeadLetterWriter
from mqgate.consumption.group_log import GroupLog
from mqgate.consumption.lease_state import LeaseStateInitializer
from mqgate.consumption.long_poll import LongPoll
from mqgate.consumption.offset_mirror import OffsetMirrorService
from mqgate.consumption.pending_notices import PendingNotices
from mqgate.consumption.positions import PositionService
from mqgate.consumption.receive import Receiver
from mqgate.consumption.service import ConsumptionService

__all__ = ["Consumption", "build_consumption"]


class Consumption(NamedTuple):
    """The use cases of consumers, and the parts that other components call."""

    service: ConsumptionService
    positions: PositionService
    long_poll: LongPoll
    mirror: OffsetMirrorService
    lease_state: LeaseStateInitializer


def build_consumption(opened: Opened, data: ControlData) -> Consumption:
    metrics, recorder, http = opened.metrics, opened.recorder, opened.settings.http
    leases, log = opened.leases.store, opened.log.log
    group_log = GroupLog(log)
    notices = PendingNotices()
    dead_letters = DeadLetterWriter(group_log, leases, opened.control.dead_letters, metrics, recorder, notices)
    interval = opened.settings.rocketmq.mirror_interval
    mirror = OffsetMirrorService(opened.log.mirror, group_log, leases, data.directory, interval)
    lease_state = LeaseStateInitializer(group_log, leases, mirror)
    long_poll = LongPoll(
        Receiver(group_log, leases, dead_letters, metrics, mirror, lease_state, recorder),
        log,
        data.directory,
        metrics,
        recorder,
        notices,
        clock=opened.leases.clock,
        max_parked=http.max_parked,
        max_parked_per_key=http.max_parked_per_key,
    )
    service = ConsumptionService(
        long_poll=long_poll,
        notices=notices,
        acknowledger=Acknowledger(leases, dead_letters, data.keys, data.catch_up, recorder),
        keys=data.keys,
        mirror=mirror,
        metrics=metrics,
        recorder=recorder,
    )
    positions = PositionService(group_log, leases, dead_letters, mirror, lease_state, recorder)
    return Consumption(service, positions, long_poll, mirror, lease_state)
