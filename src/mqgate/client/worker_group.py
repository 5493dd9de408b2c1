"""The loops of a worker for one group in message mode.

    receive   keeps up to `prefetch` messages; asks for more when half of them are handled, and carries the acks
    slots     `concurrency` tasks that call the handler
    ack       sends acks that no receive has carried for a moment
    extend    extends every lease after a third of its time, until the settlement is confirmed

A request that fails is repeated with the same attempt id and acks, so nothing is leased twice. Leases begin shortly
before the response that reports them, so their age is measured from that response on the clock of this process; when a
response was lost and the receive repeated, they may be older, and are extended at once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from mqgate.client.async_client import AsyncClient
from mqgate.client.delivery import EventKind, Message, Reject, Retry, WorkerEvent
from mqgate.client.errors import ClientError, GatewayError
from mqgate.client.handlers import Handler, HandlerThreads, as_coroutine
from mqgate.client.held import Held, HeldMessages
from mqgate.client.tracing import tracing_span
from mqgate.client.types import Outcome

__all__ = ["GroupWorker", "WorkerError", "WorkerOptions"]

_DONE = frozenset({"applied", "duplicate", "late_applied"})
_WAIT = 20.0
_MAX_REASON = 1_000
_MAX_PAUSE = 5.0
_EMPTY_PAUSE = 0.1
_MAX_RECEIPTS = 1_000
# A receive that has not returned by then is parked.
_PARKED_AFTER = 0.5
_MAX_REJECTED = 10_000
_log = logging.getLogger(__name__)


class WorkerError(Exception):
    """The worker cannot work with this group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Settings of one group; durations are in seconds."""

    concurrency: int
    prefetch: int
    visibility: float | None
    time_limit: float
    ack_linger: float
    grace: float
    client_id: str | None


class GroupWorker:
    """Receives the messages of one group, and calls its handler."""

    def __init__(
        self,
        client: AsyncClient,
        group: str,
        handler: Handler,
        options: WorkerOptions,
        observe: Callable[[WorkerEvent], None] | None,
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._observe = observe
        self._held = HeldMessages(options.prefetch // 2)
        self._held.has_room.set()
        self._ready: asyncio.Queue[Held] = asyncio.Queue()
        self._threads = HandlerThreads(options.concurrency)
        self._call_handler = as_coroutine(handler, self._threads)
        self._stopping = asyncio.Event()
        self._aborting = asyncio.Event()
        self._rejected: dict[str, None] = {}
        self._visibility = options.visibility or 0.0
        self._max_attempts = 0
        self._ack_linger = options.ack_linger

    def stop(self) -> None:
        """Receive no more. `run` returns when the running handlers have ended."""
        self._stopping.set()
        self._held.has_room.set()

    def abort(self) -> None:
        """Do not wait for the running handlers."""
        self._aborting.set()
        self.stop()

    async def run(self) -> None:
        """Work until stopped. Raise GatewayError or WorkerError if the group cannot be consumed."""
        await self._read_settings()
        slots = [asyncio.create_task(self._slot()) for _ in range(self._options.concurrency)]
        loops = [
            asyncio.create_task(loop()) for loop in (self._keep_receiving, self._keep_acking, self._keep_extending)
        ]
        try:
            # Only receiving ends without an error.
            await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            await asyncio.wait(loops[:1])
            await self._finish(slots)
            for task in loops:
                task.cancel()
            ended = await asyncio.gather(*loops, return_exceptions=True)
            self._threads.close()
        for result in ended:
            if isinstance(result, Exception):
                raise result

    async def _read_settings(self) -> None:
        group = await self._persist(lambda: self._client.groups.get(self._group))
        if group is None:
            return
        if group["mode"] != "message":
            raise WorkerError(
                f"group {self._group} is in {group['mode']} mode, and workers need message mode: use Client.receive"
            )
        self._visibility = self._visibility or float(group["visibility"])
        self._max_attempts = int(group["maxAttempts"])
        if group.get("ordered"):
            # The next message of a key is granted only after the ack.
            self._ack_linger = 0.0

    async def _keep_receiving(self) -> None:
        while True:
            await self._held.has_room.wait()
            if self._stopping.is_set():
                return
            await self._receive(min(self._options.prefetch - self._held.unfinished, _MAX_RECEIPTS))

    async def _receive(self, count: int) -> None:
        acks = self._held.take_acks()
        parameters = {"max": count, "visibility": self._visibility, "attempt_id": uuid4().hex, "ack": acks}
        failures = self._client.caller.failures
        receiving = asyncio.ensure_future(self._persist(lambda: self._call_receive(parameters, _WAIT)))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                await asyncio.wait({receiving}, timeout=_PARKED_AFTER)
            if receiving.done():
                response = receiving.result()
            else:
                receiving.cancel()
                await asyncio.wait({receiving})
                # The response may be on its way: the attempt id returns what it leased.
                response = await self._persist(lambda: self._call_receive(parameters, 0.0))
        except ClientError:
            self._held.put_back(acks)
            raise
        finally:
            stopping.cancel()
        if response is None:
            self._held.put_back(acks)
            return
        self._confirm(acks, response["acked"])
        added = self._held.add(response["messages"])
        for held in added:
            self._ready.put_nowait(held)
        if added and self._client.caller.failures > failures:
            await self._extend(added)
        elif not added and response["state"] != "ok":
            # Such a response does not wait in older gateways.
            await asyncio.sleep(_EMPTY_PAUSE)

    async def _call_receive(self, parameters: dict[str, Any], wait: float) -> Any:
        return await self._client.receive(self._group, wait=wait, client_id=self._options.client_id, **parameters)

    async def _persist(self, call: Callable[[], Any]) -> Any:
        """Repeat a call until it succeeds, or return None when the worker stops. Raise permanent refusals."""
        pause = 0.1
        while True:
            try:
                return await call()
            except ClientError as error:
                if isinstance(error, GatewayError) and not error.retryable:
                    raise
                _log.warning("gateway request failed, retrying: group=%s error=%s", self._group, error)
                if self._stopping.is_set():
                    return None
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE)

    async def _slot(self) -> None:
        while not self._stopping.is_set():
            await self._handle(await self._ready.get())

    async def _handle(self, held: Held) -> None:
        message = held.message
        held.task = asyncio.current_task()
        began = held.started_at = time.monotonic()
        try:
            if message.id in self._rejected:
                raise Reject("rejected before")  # noqa: TRY301 - one place decides what an error means
            with tracing_span(message, self._group):
                await self._call_handler(message)
        except asyncio.CancelledError:
            # By its time limit or the grace period: the task goes on, with the next message or the stop.
            if held.task is not None:
                held.task.uncancel()
            await self._fail(held, None, "the worker ended before the handler", began, EventKind.FAILED)
        except Exception as error:  # noqa: BLE001 - every error means another delivery
            is_rejected = isinstance(error, Reject)
            if is_rejected:
                self._remember(message)
            elif not isinstance(error, Retry):
                _log.warning("handler failed: group=%s id=%s", self._group, message.id, exc_info=error)
            kind = EventKind.REJECTED if is_rejected else EventKind.FAILED
            await self._fail(held, error, f"{type(error).__name__}: {error}", began, kind)
        else:
            self._held.finish(held, is_acked=not held.is_given_up)
            if held.is_given_up:
                self._held.drop([held.receipt])
            self._report(EventKind.HANDLED, message, time.monotonic() - began)

    async def _fail(self, held: Held, error: Exception | None, reason: str, began: float, kind: EventKind) -> None:
        self._held.finish(held, is_acked=False)
        self._report(kind, held.message, time.monotonic() - began, error)
        delay = error.delay if isinstance(error, Retry) else 0 if isinstance(error, Reject) else None
        await self._release([held], reason, delay)

    def _remember(self, message: Message) -> None:
        self._rejected[message.id] = None
        if len(self._rejected) > _MAX_REJECTED:
            del self._rejected[next(iter(self._rejected))]

    async def _release(self, messages: Sequence[Held], reason: str, delay: Any) -> None:
        receipts = [held.receipt for held in messages]
        try:
            await self._client.nack_all(self._group, receipts, delay=delay, reason=reason[:_MAX_REASON])
        except ClientError as error:
            # The leases end by themselves, which is a failed delivery too.
            _log.warning("nack failed: group=%s messages=%d error=%s", self._group, len(receipts), error)
        self._held.drop(receipts)

    async def _keep_acking(self) -> None:
        while True:
            age = self._held.age_of_acks()
            if age is None:
                await asyncio.sleep(max(self._ack_linger, 0.01))
            elif age < self._ack_linger:
                await asyncio.sleep(self._ack_linger - age)
            else:
                await self._ack()

    async def _ack(self) -> None:
        acks = self._held.take_acks()
        try:
            self._confirm(acks, await self._client.ack_all(self._group, acks))
        except ClientError as error:
            _log.warning("ack failed, retrying: group=%s messages=%d error=%s", self._group, len(acks), error)
            self._held.put_back(acks)

    def _confirm(self, acks: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        for receipt, outcome in zip(acks, outcomes, strict=True):
            if outcome.get("error", {}).get("retryable"):
                self._held.put_back([receipt])
                continue
            if outcome["outcome"] not in _DONE:
                self._lose(receipt, outcome["outcome"])
            self._held.drop([receipt])

    def _lose(self, receipt: str, outcome: str) -> None:
        held = self._held.find(receipt)
        if held is not None:
            _log.warning("lease lost: group=%s id=%s outcome=%s", self._group, held.message.id, outcome)
            self._report(EventKind.LEASE_LOST, held.message)

    async def _keep_extending(self) -> None:
        while True:
            await asyncio.sleep(max(self._visibility / 6, 0.05))
            self._enforce_time_limit()
            due = self._held.to_extend(self._visibility / 3)
            for start in range(0, len(due), _MAX_RECEIPTS):
                await self._extend(due[start : start + _MAX_RECEIPTS])

    def _enforce_time_limit(self) -> None:
        now = time.monotonic()
        for held in self._held.running():
            if not held.is_given_up and now - (held.started_at or now) > self._options.time_limit:
                held.is_given_up = True
                _log.error(
                    "handler exceeded its time limit of %g s, its lease is no longer extended: group=%s id=%s; "
                    "give the handler a time-out, or raise time_limit",
                    self._options.time_limit,
                    self._group,
                    held.message.id,
                )
                if held.task is not None:
                    held.task.cancel()

    async def _extend(self, due: Sequence[Held]) -> None:
        now = time.monotonic()
        try:
            outcomes = await self._client.extend_all(self._group, [held.receipt for held in due], self._visibility)
        except ClientError as error:
            _log.warning("extend failed, retrying: group=%s messages=%d error=%s", self._group, len(due), error)
            return
        for held, outcome in zip(due, outcomes, strict=True):
            if outcome["outcome"] in _DONE:
                held.leased_at = now
            elif not held.is_given_up:
                # The ack of a finished message may have been carried meanwhile.
                held.is_given_up = True
                if not held.is_finished:
                    self._lose(held.receipt, outcome["outcome"])

    async def _finish(self, slots: Sequence["asyncio.Task[None]"]) -> None:
        """Release what has not begun, wait for the handlers that run, and send the last acks."""
        released = []
        while not self._ready.empty():
            held = self._ready.get_nowait()
            if self._max_attempts and held.message.delivery >= self._max_attempts:
                # A released delivery counts, and would dead-letter a message that nobody handled.
                held.task = asyncio.create_task(self._handle(held))
                held.started_at = time.monotonic()
                continue
            self._held.finish(held, is_acked=False)
            self._report(EventKind.RELEASED, held.message)
            released.append(held)
        working = {held.task for held in self._held.running()}
        for slot in slots:
            if slot not in working:
                slot.cancel()
        for start in range(0, len(released), _MAX_RECEIPTS):
            await self._release(released[start : start + _MAX_RECEIPTS], "the worker stopped before it began", 0)
        await self._wait_for_handlers()
        while self._held.age_of_acks() is not None:
            acks = self._held.take_acks()
            try:
                self._confirm(acks, await self._client.ack_all(self._group, acks))
            except ClientError as error:
                _log.error(
                    "acks lost, messages will repeat: group=%s messages=%d error=%s", self._group, len(acks), error
                )

    async def _wait_for_handlers(self) -> None:
        running = {held.task for held in self._held.running() if held.task is not None}
        if not running:
            return
        aborting = asyncio.create_task(self._aborting.wait())
        all_ended = asyncio.ensure_future(asyncio.wait(running))
        await asyncio.wait({all_ended, aborting}, timeout=self._options.grace, return_when=asyncio.FIRST_COMPLETED)
        aborting.cancel()
        all_ended.cancel()
        late = {task for task in running if not task.done()}
        for task in late:
            task.cancel()
        if late:
            _log.error("handlers did not end within the grace period: group=%s count=%d", self._group, len(late))
            await asyncio.wait(late, timeout=5)

    def _report(
        self, kind: EventKind, message: Message, duration: float = 0.0, error: BaseException | None = None
    ) -> None:
        if self._observe is not None:
            event = WorkerEvent(kind=kind, group=self._group, message=message, duration=duration, error=error)
            self._observe(event)
