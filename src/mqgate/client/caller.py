"""Retries, failover and deadline of every call.

    refused as not retryable           -> raised at once
    429                                -> the same gateway again, after Retry-After
    503 and other retryable refusals   -> the next gateway; after each was tried, a pause of at least Retry-After
    not connected                      -> the next gateway
    response lost                      -> the next gateway if the call is repeatable, otherwise raised
Pauses grow from 0.1 s to 5 s, with jitter, until `retry_for` has passed since the call began.
"""

import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from mqgate.client.errors import ClientError, GatewayError, Reply, refusal
from mqgate.client.requests import Call, Json, decode, seconds
from mqgate.client.transport import Transport, check_address

__all__ = ["Caller", "Retries"]

_MIN_PAUSE, _MAX_PAUSE = 0.1, 5.0


class Caller:
    """The gateways of a client, of which it uses one until that one fails."""

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None,
        *,
        timeout: float | timedelta,
        retry_for: float | timedelta,
        transport: Callable[[list[str]], Transport],
    ) -> None:
        addresses = [url] if isinstance(url, str) else list(url)
        if not addresses:
            raise ValueError("url must name at least one gateway")
        # The HTTP library would quote an illegal header, and with it the key, in its error.
        if key is not None and not (key and key.isascii() and key.isprintable()):
            raise ValueError("the key must be printable ASCII; check for a truncated key or a line end")
        self._addresses = [check_address(address) for address in addresses]
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.timeout = seconds(timeout)
        self._retry_for = seconds(retry_for)
        self.transport = transport(self._addresses)
        self._chosen = 0
        # Attempts that were repeated.
        self.failures = 0

    @property
    def address(self) -> str:
        """The gateway that the next call is sent to."""
        return self._addresses[self._chosen]

    async def call(self, call: Call) -> Json:
        """Return the JSON of the response. Raise GatewayError or GatewayUnreachable when there is no retry left."""
        return decode(await self.exchange(call))

    async def exchange(self, call: Call) -> Reply:
        """Return the successful response, after retries."""
        retries = self.retries()
        while True:
            tried = self._chosen
            try:
                return await self._attempt(call)
            except ClientError as error:
                pause = retries.pause_after(error, call)
                if pause is None:
                    raise
                self.failures += 1
                if not _is_rate_limited(error) and self._chosen == tried:
                    self._chosen = (tried + 1) % len(self._addresses)
                if pause:
                    await self.transport.pause(pause)

    @property
    def has_retries(self) -> bool:
        return self._retry_for > 0

    def retries(self) -> "Retries":
        return Retries(self._retry_for, len(self._addresses))

    async def send(self, call: Call) -> Reply:
        """Return any response of the chosen gateway, without retries."""
        headers = {} if call.is_anonymous else self.headers
        return await self.transport.send(self.address, call, headers, self.timeout)

    async def _attempt(self, call: Call) -> Reply:
        reply = await self.send(call)
        if not reply.is_success:
            raise refusal(reply)
        return reply

    async def close(self) -> None:
        await self.transport.close()


class Retries:
    """The retries of one call."""

    def __init__(self, retry_for: float, gateways: int) -> None:
        self._ends = time.monotonic() + retry_for
        self._gateways = gateways
        self._failures = 0
        self._pause = _MIN_PAUSE

    def pause_after(self, error: ClientError, call: Call) -> float | None:
        """Return the pause before the next attempt, or None if there is none."""
        if not _is_retryable(error, call):
            return None
        self._failures += 1
        if self._failures % self._gateways and not _is_rate_limited(error):
            return 0.0 if time.monotonic() < self._ends else None
        requested = getattr(error, "retry_after", None)
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter between clients
        # Jitter also on top of what the gateway asks for, or all its clients return at once.
        pause += requested.total_seconds() if requested else 0.0
        self._pause = min(self._pause * 2, _MAX_PAUSE)
        return pause if time.monotonic() + pause < self._ends else None


def _is_retryable(error: ClientError, call: Call) -> bool:
    if isinstance(error, GatewayError):
        # `unknown` and answers of proxies leave open whether the request was executed.
        is_unexecuted = error.status == HTTPStatus.TOO_MANY_REQUESTS or error.code not in {
            "unknown",
            "unexpected_answer",
        }
        return error.retryable and (call.is_repeatable or is_unexecuted)
    return call.is_repeatable or not getattr(error, "is_outcome_unknown", True)


def _is_rate_limited(error: Any) -> bool:
    return isinstance(error, GatewayError) and error.status == HTTPStatus.TOO_MANY_REQUESTS
