"""How bytes reach a gateway: one interface, with a blocking and an asyncio implementation on httpx2.

The blocking one never suspends, so its coroutines can be run without an event loop (`blocking.py`).
"""

import asyncio
import ssl
import time
from collections.abc import Mapping
from typing import Any, Protocol

import httpx2

from mqgate.client.errors import GatewayUnreachable, Reply
from mqgate.client.requests import Call

__all__ = ["AsyncTransport", "BlockingTransport", "Transport", "check_address"]

_AGENT = {"User-Agent": "mqgate-client"}
# More than any client needs; the gateway limits connections, and the caller its own tasks.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)


class Transport(Protocol):
    """Sends single requests, without retries."""

    async def send(self, address: str, call: Call, headers: Mapping[str, str], timeout: float) -> Reply:  # noqa: ASYNC109 - of each read, not of the call
        """Return any response. Raise GatewayUnreachable if there is none."""

    async def pause(self, duration: float) -> None:
        """Wait between two attempts."""

    async def close(self) -> None:
        """Close all connections."""


class AsyncTransport:
    """Connections of one event loop."""

    def __init__(self, addresses: list[str]) -> None:
        self._http = httpx2.AsyncClient(headers=_AGENT, verify=_verification(addresses), limits=_LIMITS)

    async def send(self, address: str, call: Call, headers: Mapping[str, str], timeout: float) -> Reply:  # noqa: ASYNC109 - of each read, not of the call
        try:
            response = await self._http.request(**_arguments(address, call, headers, timeout))
        except httpx2.RequestError as error:
            raise _unreachable(address, error) from error
        return _reply(response)

    async def pause(self, duration: float) -> None:
        await asyncio.sleep(duration)

    async def close(self) -> None:
        await self._http.aclose()


class BlockingTransport:
    """Connections that threads share. No method suspends."""

    def __init__(self, addresses: list[str]) -> None:
        self.http = httpx2.Client(headers=_AGENT, verify=_verification(addresses), limits=_LIMITS)

    async def send(self, address: str, call: Call, headers: Mapping[str, str], timeout: float) -> Reply:  # noqa: ASYNC109 - of each read, not of the call
        try:
            response = self.http.request(**_arguments(address, call, headers, timeout))
        except httpx2.RequestError as error:
            raise _unreachable(address, error) from error
        return _reply(response)

    async def pause(self, duration: float) -> None:
        time.sleep(duration)  # noqa: ASYNC251 - see the module

    async def close(self) -> None:
        self.http.close()


def check_address(address: str) -> str:
    """Return the address without its trailing slash. Raise ValueError if it is not the URL of a gateway."""
    try:
        parsed = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise ValueError(f"{address!r} is not a URL: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"{address!r} is not the URL of a gateway, such as http://127.0.0.1:8080")
    return address.rstrip("/")


def _arguments(address: str, call: Call, headers: Mapping[str, str], timeout: float) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": address + call.path,
        "params": call.parameters or None,
        "content": call.content,
        # As bytes, because the HTTP library encodes text as ASCII; a gateway reads headers as UTF-8.
        "headers": [(name.encode(), value.encode()) for name, value in {**headers, **call.headers}.items()],
        "timeout": httpx2.Timeout(timeout, read=timeout + call.wait),
    }


def _reply(response: httpx2.Response) -> Reply:
    # The names are in lower case already.
    headers = dict(response.headers)
    return Reply(url=str(response.url), status=response.status_code, headers=headers, content=response.content)


def _unreachable(address: str, error: httpx2.RequestError) -> GatewayUnreachable:
    is_unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    reason = str(error) or type(error).__name__
    return GatewayUnreachable(f"no response from {address}: {reason}", is_outcome_unknown=not is_unsent)


def _verification(addresses: list[str]) -> ssl.SSLContext | bool:
    """Return the certificate verification: the authorities of the system for https, an empty context for http.

    Loading the authorities takes 30 ms in every Spark task, and plain HTTP does not need them.
    """
    is_secure = any(address.startswith("https:") for address in addresses)
    return True if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
