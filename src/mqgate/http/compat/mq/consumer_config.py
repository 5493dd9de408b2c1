"""/mq/consumer/config and unregister: the admin calls of the dialect, which require the MU header.

Everything is validated before anything is changed. Settings that mqgate does not support are refused and not stored:
another pull size, or settings of a consumer that is not registered (the original stores those).
"""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mqgate.consumption.positions import PositionService
from mqgate.control.registry.model import GroupSpec, check_visibility
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import ClientNotFound, InvalidValue, NotSupportedYet
from mqgate.core.message import Message
from mqgate.core.times import parse_duration, parse_instant
from mqgate.http.compat.mq.call import find_group
from mqgate.http.compat.mq.consume import MAX_PULL_SIZE
from mqgate.http.compat.mq.envelope import FAILED, INVALID, OK, Refusal, status_response
from mqgate.http.compat.mq.mu_header import MuHeader
from mqgate.http.compat.mq.offsets import DEFAULT_RATE, PULL_TIMEOUT_MS
from mqgate.http.compat.mq.parameters import read_parameters, trimmed
from mqgate.http.compat.mq.resends import Resends
from mqgate.http.exchange import Request, Response
from mqgate.http.json_input import explain
from mqgate.ports.lease_store import LeaseStore
from mqgate.ports.message_log import MessageLog

_Switch = Annotated[int, Meta(ge=0, le=1)]


class ConfigIn(Struct, rename="camel"):
    consumer: str = ""
    max_pull_size: Annotated[int, Meta(ge=1, le=128)] | None = None
    consume_timeout_in_millis: Annotated[int, Meta(ge=10_000, le=129_600_000)] | None = None
    pull_timeout_in_millis: Annotated[int, Meta(ge=1_000, le=60_000)] | None = None
    pause: _Switch | None = None
    rate_limit_enabled: _Switch | None = None
    limit_rate: Annotated[float, Meta(ge=1)] | None = None
    reset_offset_timestamp: Annotated[int, Meta(ge=0)] | None = None
    client_id: str | None = None
    retry_msg_id: str | None = None


class ConsumerConfigApi:
    def __init__(
        self,
        *,
        registry: Registry,
        positions: PositionService,
        leases: LeaseStore,
        log: MessageLog,
        resends: Resends,
        mu_header: MuHeader,
        changed: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._positions = positions
        self._leases = leases
        self._log = log
        self._resends = resends
        self._mu_header = mu_header
        self._changed = changed

    async def configure(self, request: Request) -> Response:
        actor = self._actor(request)
        given = _config_in(request.body)
        group = await find_group(request, self._registry, given.consumer)
        if group is None:
            raise Refusal(FAILED, f"consumer:{given.consumer} haven't registered")
        spec = _changes(given, group)
        target = None
        if given.reset_offset_timestamp is not None:
            target = parse_instant(given.reset_offset_timestamp, "resetOffsetTimestamp")
        resent = await self._message(group, given.retry_msg_id) if given.retry_msg_id else None
        clients = await self._clients(group, given.client_id) if target or resent else []

        await self._registry.patch_group(group.name, spec, actor)
        if given.pause is not None:
            await self._registry.pause(
                group.name, is_paused=bool(given.pause), reason="/mq/consumer/config", actor=actor
            )
        for client in clients:
            if resent is not None:
                self._resends.add(group, client, resent)
            if target is None:
                continue
            moved = await self._positions.seek(group, client, target, is_dry_run=False)
            self._changed(group.name)
            details = {"client": client, "queues": [[row.queue, row.old, row.new] for row in moved]}
            await self._registry.record(actor, "seek", f"group {group.name}", "/mq/consumer/config", details)
        return status_response(OK)

    async def unregister(self, request: Request) -> Response:
        """Pause a consumer. Its offsets and dead letters are kept, so that a mistake can be undone."""
        actor = self._actor(request)
        name = (await read_parameters(request)).text("consumer")
        if name is None:
            raise Refusal(FAILED, "consumer is required")
        if await find_group(request, self._registry, name) is None:
            raise Refusal(INVALID, f"consumer:{name} haven't registered")
        await self._registry.pause(name, is_paused=True, reason="/mq/unregister", actor=actor)
        return status_response(OK)

    def _actor(self, request: Request) -> str:
        return f"mq {self._mu_header.check(request.headers.get(b'mu'))}"

    async def _message(self, group: Group, message_id: str) -> Message:
        message = await self._log.find(group.topic, message_id)
        if message is None:
            raise Refusal(FAILED, f"topic:{group.topic} has no message {message_id}")
        try:
            message.body.decode()
        except UnicodeDecodeError:
            raise InvalidValue("The message is not UTF-8. /mq supports text only.", field="retryMsgId") from None
        return message

    async def _clients(self, group: Group, client: str | None) -> list[str]:
        """Return the clients to act on: [""] for a group, the named client or all clients in broadcast mode."""
        if group.mode is not Mode.BROADCAST:
            return [""]
        if client is not None and trimmed(client):
            await self._positions.lag(group, client)
            return [client]
        found = []
        for known in await self._leases.clients(group.name):
            try:
                await self._positions.lag(group, known.name)
            except ClientNotFound:
                continue
            found.append(known.name)
        return found


def _config_in(body: bytes) -> ConfigIn:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(FAILED, f"the body must be JSON: {error}") from None
    try:
        # Not strict: the dialect accepts numbers as text.
        config = msgspec.convert(given, ConfigIn, strict=False)
    except msgspec.ValidationError as error:
        raise explain(error) from None
    if not trimmed(config.consumer):
        raise InvalidValue("consumer must not be blank", field="consumer")
    return config


def _changes(given: ConfigIn, group: Group) -> GroupSpec:
    for field, value, fixed in (
        ("maxPullSize", given.max_pull_size, MAX_PULL_SIZE),
        ("pullTimeoutInMillis", given.pull_timeout_in_millis, PULL_TIMEOUT_MS),
    ):
        if value not in {None, fixed}:
            raise NotSupportedYet(f"{field} is {fixed} and cannot be changed. Omit it.", field=field)
    spec = GroupSpec(rate_limit=_rate(given, group))
    if given.consume_timeout_in_millis is not None:
        spec.visibility = f"{given.consume_timeout_in_millis}ms"
        check_visibility(parse_duration(spec.visibility, "consumeTimeoutInMillis"))
    return spec


def _rate(given: ConfigIn, group: Group) -> float | UnsetType | None:
    """Return the rate limit for a switch and a rate. Off removes the rate; a rate alone enables the limit."""
    if given.rate_limit_enabled == 0:
        return None
    if given.limit_rate is not None:
        return given.limit_rate
    if given.rate_limit_enabled == 1 and group.rate_limit is None:
        return DEFAULT_RATE
    return UNSET
