"""Handlers that show the offsets and the settings of a consumer."""

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from mqgate.consumption.positions import PositionService
from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import ClientNotFound
from mqgate.core.lease import Position
from mqgate.core.message import milliseconds
from mqgate.http.compat.mq.call import find_group
from mqgate.http.compat.mq.consume import MAX_PULL_SIZE
from mqgate.http.compat.mq.envelope import FAILED, Refusal, result_response
from mqgate.http.compat.mq.parameters import read_parameters
from mqgate.http.compat.mq.queue_info import QueueInfo, of_position
from mqgate.http.exchange import Request, Response
from mqgate.ports.lease_store import LeaseStore

# The rate that is shown for a group without a limit, and set when the limiter is enabled without a rate.
DEFAULT_RATE = 1024.0
# The broker pull timeout of the original. It has no effect here.
PULL_TIMEOUT_MS = 10_000
QueueOffsets = list[QueueInfo] | Mapping[str, list[QueueInfo]]


class ClientSeen(Struct, rename="camel"):
    client_id: str
    access_time: int


class ConfigOut(Struct, rename="camel", kw_only=True):
    message_model: str
    topic: str
    group: str
    broadcasting: bool
    max_pull_size: int = MAX_PULL_SIZE
    consume_timeout_in_millis: int
    consumer_pull_timeout_millis: int = PULL_TIMEOUT_MS
    pause: bool
    # The original misspells the member, its console does not. Both are sent.
    rate_limier_enabled: bool
    rate_limiter_enabled: bool
    limit_rate: float
    pop: bool = False
    client_id_map: dict[str, ClientSeen] | UnsetType = UNSET
    queue_offsets: QueueOffsets


class OffsetsApi:
    def __init__(self, registry: Registry, positions: PositionService, leases: LeaseStore) -> None:
        self._registry = registry
        self._positions = positions
        self._leases = leases

    async def queue_offsets(self, request: Request) -> Response:
        name = (await read_parameters(request)).text("consumer")
        if name is None:
            # The original returns 500 and not 400 if this parameter is missing.
            raise Refusal(FAILED, "consumer is required")
        group = await find_group(request, self._registry, name)
        if group is None:
            raise Refusal(FAILED, f"consumer:{name} haven't registered")
        return result_response(await self._offsets(group) or None)

    async def config(self, request: Request) -> Response:
        group = await find_group(request, self._registry, request.path("consumer"))
        if group is None:
            return result_response(None)
        is_broadcast = group.mode is Mode.BROADCAST
        limit = group.rate_limit
        found = ConfigOut(
            message_model="BROADCASTING" if is_broadcast else "CLUSTERING",
            topic=group.topic,
            group=group.name,
            broadcasting=is_broadcast,
            consume_timeout_in_millis=int(group.visibility.total_seconds() * 1000),
            pause=group.is_paused,
            rate_limier_enabled=limit is not None,
            rate_limiter_enabled=limit is not None,
            limit_rate=limit.rate if limit else DEFAULT_RATE,
            queue_offsets=await self._offsets(group),
        )
        if is_broadcast:
            found.client_id_map = {
                client.name: ClientSeen(client.name, milliseconds(client.last_seen))
                for client in await self._leases.clients(group.name)
            }
        return result_response(found)

    async def _offsets(self, group: Group) -> QueueOffsets:
        """Return the queues of a clustering consumer, or of each client of a broadcast consumer."""
        addresses = {client.name: client.address for client in await self._leases.clients(group.name)}
        if group.mode is not Mode.BROADCAST:
            return await self._of_scope(group, "", addresses)
        found = {}
        for client in addresses:
            try:
                found[client] = await self._of_scope(group, client, addresses)
            except ClientNotFound:
                # The client was idle for longer than clientTtl, so its offsets were deleted.
                continue
        return found

    async def _of_scope(self, group: Group, client: str, addresses: Mapping[str, str]) -> list[QueueInfo]:
        rows = (await self._positions.lag(group, client)).positions
        return [of_position(group, row, addresses) for row in sorted(rows, key=_choice_order)]


def _choice_order(row: Position) -> tuple[bool, int, int]:
    """Return the sort key in which fetches choose queues: free ones, the highest lag, the least recently consumed."""
    consumed = milliseconds(row.last_consumed_at) if row.last_consumed_at else 0
    return row.locked_until is not None, -row.lag, consumed
