"""Handlers that list, show, cancel and reschedule scheduled messages."""

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from mqgate.control.access.permissions import Grant
from mqgate.control.registry.model import Duration, Instant
from mqgate.core.errors import AlreadyCancelled, AlreadyDelivered, InvalidValue, ScheduledNotFound
from mqgate.core.times import parse_duration, parse_instant
from mqgate.delay.dispatcher import TimerDispatcher
from mqgate.delay.plan import plan
from mqgate.events.recorder import EventRecorder
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode, query, query_instant
from mqgate.http.native.registry import check_limit
from mqgate.http.native.schemas import Scheduled, ScheduledDetailOut, scheduled_detail_out, scheduled_out
from mqgate.http.operation import describe
from mqgate.ports.directory import Directory
from mqgate.ports.timer_store import Timer, TimerState, TimerStore


class ScheduledQuery(Struct, rename="camel", forbid_unknown_fields=True):
    topic: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    limit: int = 100
    cursor: str | None = None


class RetimeIn(Struct, rename="camel", forbid_unknown_fields=True):
    delay: Duration | None = None
    deliver_at: Instant | None = None


class ScheduledList(Struct):
    items: list[Scheduled]
    next: str | None


class Cancelled(Struct):
    id: str
    outcome: str


_retime_in = msgspec.json.Decoder(RetimeIn)


class ScheduledApi:
    def __init__(
        self,
        timers: TimerStore,
        dispatcher: TimerDispatcher,
        recorder: EventRecorder,
        longest_delay: timedelta,
        clock: Callable[[], datetime],
        directory: Directory,
    ) -> None:
        self._directory = directory
        self._timers = timers
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._longest_delay = longest_delay
        self._clock = clock

    @describe("listScheduled", "delay", query=ScheduledQuery, responses={200: ScheduledList})
    async def list(self, request: Request) -> Response:
        """List scheduled messages, the next one first."""
        requested = query(request, ScheduledQuery)
        timers, next_cursor = await self._timers.list(
            topic=requested.topic,
            since=query_instant(requested.from_, "from"),
            until=query_instant(requested.to, "to"),
            limit=check_limit(requested.limit),
            after=requested.cursor,
            producer=request.principal.producer,
        )
        return reply(200, ScheduledList([scheduled_out(timer) for timer in timers], next_cursor))

    @describe("getScheduled", "delay", responses={200: ScheduledDetailOut}, errors=(404,))
    async def get(self, request: Request) -> Response:
        """Show a scheduled message."""
        return reply(200, scheduled_detail_out(await self._find_permitted(request)))

    @describe("cancelScheduled", "delay", responses={200: Cancelled}, errors=(404, 409, 507))
    async def cancel(self, request: Request) -> Response:
        """Cancel a scheduled message."""
        message_id = request.path("id")
        if request.grant is Grant.OWN:
            await self._find_permitted(request)
        state = await self._timers.change(message_id, None)
        _check_state(message_id, state, {TimerState.SCHEDULED, TimerState.CANCELLED})
        if state is TimerState.SCHEDULED:
            timer = await self._find(message_id)
            self._recorder.cancelled(timer.topic, message_id, timer.due)
        return reply(200, Cancelled(message_id, "cancelled"))

    @describe("retimeScheduled", "delay", request_type=RetimeIn, responses={200: Scheduled}, errors=(404, 409, 507))
    async def retime(self, request: Request) -> Response:
        """Change the delivery time of a scheduled message."""
        message_id = request.path("id")
        if request.grant is Grant.OWN:
            await self._find_permitted(request)
        given = decode(request.body, _retime_in)
        if given.delay is None and given.deliver_at is None:
            raise InvalidValue("Provide delay or deliverAt.", field="deliverAt")
        now = self._clock()
        delay = None if given.delay is None else parse_duration(given.delay, "delay")
        at = None if given.deliver_at is None else parse_instant(given.deliver_at, "deliverAt")
        due = plan(delay, at, now, self._longest_delay) or now
        _check_state(message_id, await self._timers.change(message_id, due), {TimerState.SCHEDULED})
        self._dispatcher.wake_by(due)
        timer = await self._find(message_id)
        return reply(200, scheduled_out(timer))

    async def _find_permitted(self, request: Request) -> Timer:
        """Return the timer in the path. A timer of another producer or team is reported as missing."""
        timer = await self._find(request.path("id"))
        if request.grant is Grant.OWN:
            caller = request.principal
            producer = None if timer.producer is None else self._directory.snapshot.producers.get(timer.producer)
            if producer is None or not (caller.producer == producer.name or caller.owns(producer)):
                raise _unknown(timer.draft.id)
        return timer

    async def _find(self, message_id: str) -> Timer:
        timer = await self._timers.get(message_id)
        if timer is None:
            raise _unknown(message_id)
        return timer


def _check_state(message_id: str, state: TimerState | None, allowed: set[TimerState]) -> None:
    if state is None:
        raise _unknown(message_id)
    if state in allowed:
        return
    if state is TimerState.CANCELLED:
        raise AlreadyCancelled(f"Message {message_id} was cancelled. Publish it again.", id=message_id)
    raise AlreadyDelivered(f"Message {message_id} was already delivered.", id=message_id)


def _unknown(message_id: str) -> ScheduledNotFound:
    return ScheduledNotFound(f"Message {message_id} is not scheduled, and was not recently.")
