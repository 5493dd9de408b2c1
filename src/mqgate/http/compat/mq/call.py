"""The parameters that /mq/message, /mq/ack and /mq/unlock share."""

from dataclasses import dataclass
from datetime import timedelta

from starlette.requests import cookie_parser

from mqgate.control.registry.service import Registry
from mqgate.core.entries import Group, Mode
from mqgate.core.errors import GroupNotFound
from mqgate.core.names import check_client
from mqgate.http.compat.mq.envelope import FAILED, Refusal
from mqgate.http.compat.mq.parameters import Parameters, read_parameters, trimmed
from mqgate.http.exchange import Request

_COOKIE = "rid"
_MAX_ADDRESS_LENGTH = 64
_MAX_WAIT_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    group: Group
    client: str
    request_id: str | None
    address: str
    uses_cookie: bool
    wait: timedelta


async def read_call(request: Request, registry: Registry) -> Call:
    given = await read_parameters(request)
    topic, name = given.required("topic"), given.required("consumer")
    request_id = given.text("requestId")
    uses_cookie = given.flag("useCookie")
    if request_id is None and uses_cookie:
        request_id = _from_cookie(request)
    group = await find_group(request, registry, name)
    if group is None:
        raise Refusal(FAILED, f"consumer:{name} haven't registered")
    if group.topic != topic:
        raise Refusal(FAILED, f"consumer:{name} subscribe:{group.topic} but fetch:{topic}")
    return Call(
        group=group,
        client=_client(group, given.text("clientId")),
        request_id=request_id,
        address=_address(request, given),
        uses_cookie=uses_cookie,
        # 0 by default: the bundled clients time out after one second.
        wait=timedelta(seconds=given.number("pullTimeout", 1, _MAX_WAIT_SECONDS) or 0),
    )


async def find_group(request: Request, registry: Registry, name: str) -> Group | None:
    """Return a group that the dialect can serve, or None. It supports leased queues only, not message mode."""
    try:
        group = await registry.group(name)
    except GroupNotFound:
        return None
    request.log_fields.update(group=name, topic=group.topic)
    return None if group.mode is Mode.MESSAGE else group


def set_cookie(request_id: str | None) -> bytes:
    """Return the cookie that keeps the requestId until the next fetch, or deletes it if there is nothing to ack."""
    if request_id is None:
        return f"{_COOKIE}=; Path=/; Max-Age=0".encode()
    return f"{_COOKIE}={request_id}; Path=/".encode()


def _from_cookie(request: Request) -> str | None:
    found = cookie_parser(request.headers.get(b"cookie", b"").decode("latin-1")).get(_COOKIE, "")
    return found if trimmed(found) else None


def _client(group: Group, client: str | None) -> str:
    if group.mode is Mode.BROADCAST:
        if client is None:
            raise Refusal(FAILED, f"consumer:{group.name} clientId is null")
        return check_client(client)
    if client is not None:
        raise Refusal(FAILED, f"consumer:{group.name} no need clientId")
    return ""


def _address(request: Request, given: Parameters) -> str:
    """Return the address of the client, for display only: any client can set these values."""
    forwarded = request.headers.get(b"x-forwarded-for", b"").decode("latin-1").partition(",")[0]
    real = request.headers.get(b"x-real-ip", b"").decode("latin-1")
    for address in (given.text("clientIp") or "", forwarded, real):
        found = trimmed(address)
        if 0 < len(found) <= _MAX_ADDRESS_LENGTH and found.isprintable():
            return found
    return request.address
