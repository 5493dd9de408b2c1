"""IdempotencyStore in PostgreSQL: if several gateways claim one key, one publishes and the others wait for it.

    the key is not claimed, or its window is over                  -> claimed
    it has a response, or was used for another body                -> that record
    an earlier publish of this gateway has no response             -> claimed; the publisher must search the log first
    claimed by a gateway that is gone, or longer ago than `sending` -> claimed; the publisher must search the log first
    claimed by another gateway that is publishing now              -> wait for its response, release or end

`sending` must be longer than a publish can take, from the claim to the last response of a broker. Two gateways then
send under one key only if the first lost its broker while sending, which is an `unknown` outcome.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Literal, NamedTuple

from mqgate.adapters.postgres.database import Database, queries
from mqgate.adapters.postgres.presence import Presence
from mqgate.adapters.postgres.statement_batcher import StatementBatcher
from mqgate.ports.idempotency import Claim, KeyRecord

__all__ = ["PostgresIdempotencyStore"]

_SQL = queries("idempotency")
_BATCH = 2_000
_MIN_PAUSE = 0.02
_MAX_PAUSE = 0.2


class _Pending(Enum):
    ELSEWHERE = "another gateway is publishing under the key"


_ClaimResult = KeyRecord | None | Literal[_Pending.ELSEWHERE]


class _Completion(NamedTuple):
    claim: Claim
    response: str


class PostgresIdempotencyStore:
    """Store of one gateway. Keys are deleted after `window`."""

    def __init__(
        self,
        database: Database,
        presence: Presence,
        window: timedelta,
        *,
        sending: timedelta = timedelta(seconds=10),
    ) -> None:
        self._database = database
        self._owner = presence.owner
        self._window = window
        self._sending = sending
        self._claims: StatementBatcher[Claim, _ClaimResult] = StatementBatcher(self._claim, database.spawn)
        self._completions: StatementBatcher[_Completion, None] = StatementBatcher(self._complete, database.spawn)

    async def claim(self, claims: Sequence[Claim]) -> Sequence[KeyRecord | None]:
        loop = asyncio.get_running_loop()
        found = await self._claims.submit(claims)
        # By then the time of the other gateways (`sending`) is over by the clock of the store.
        end = loop.time() + self._sending.total_seconds() + _MAX_PAUSE
        pause = _MIN_PAUSE
        while _Pending.ELSEWHERE in found and loop.time() < end:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
            # Claim all keys again: this restarts the time of those that this gateway has.
            again = await self._claims.submit(claims)
            found = [_merge(*results) for results in zip(claims, found, again, strict=True)]
        return [
            KeyRecord(claim.digest, None) if result is _Pending.ELSEWHERE else result
            for claim, result in zip(claims, found, strict=True)
        ]

    async def _claim(self, claims: Sequence[Claim]) -> Sequence[_ClaimResult]:
        found: dict[int, _ClaimResult] = {}
        while len(found) < len(claims):
            # A statement cannot change a row twice: a repeated key is claimed by the next statement.
            unique: dict[tuple[str, str], int] = {}
            for index, claim in enumerate(claims):
                if index not in found:
                    unique.setdefault((claim.topic, claim.key), index)
            found |= await self._claim_unique({index: claims[index] for index in unique.values()})
        return [found[index] for index in range(len(claims))]

    async def _claim_unique(self, claims: dict[int, Claim]) -> dict[int, _ClaimResult]:
        """Return the result of each claim, except those whose key was released between the two statements."""
        values = {
            **_columns(claims.values()),
            "digests": [claim.digest for claim in claims.values()],
            "ids": [claim.id for claim in claims.values()],
            "owner": self._owner,
            "sending": self._sending,
            "window": self._window,
        }
        taken = {(topic, key): uses for topic, key, uses in await self._database.write(_SQL["claim"], values)}
        found: dict[int, _ClaimResult] = {}
        others: dict[int, Claim] = {}
        for index, claim in claims.items():
            uses = taken.get((claim.topic, claim.key))
            if uses is None:
                others[index] = claim
            else:
                found[index] = None if uses == 1 else KeyRecord(claim.digest, None)
        if others:
            rows = await self._database.read(_SQL["find"], _columns(others.values()))
            known = {(topic, key): KeyRecord(digest, response) for topic, key, digest, response in rows}
            for index, claim in others.items():
                record = known.get((claim.topic, claim.key))
                if record is not None:
                    is_final = record.response is not None or record.digest != claim.digest
                    found[index] = record if is_final else _Pending.ELSEWHERE
        return found

    async def complete(self, claims: Sequence[Claim], responses: Sequence[str]) -> None:
        await self._completions.submit([_Completion(*completion) for completion in zip(claims, responses, strict=True)])

    async def _complete(self, completions: Sequence[_Completion]) -> Sequence[None]:
        claims = [completion.claim for completion in completions]
        responses = [completion.response for completion in completions]
        values = {**_columns(claims), "digests": [claim.digest for claim in claims], "answers": responses}
        await self._database.write(_SQL["complete"], values, is_repeatable=True)
        return [None] * len(completions)

    async def release(self, claims: Sequence[Claim]) -> None:
        values = {**_columns(claims), "owner": self._owner}
        await self._database.write(_SQL["release"], values, is_repeatable=True)

    async def forget(self, topic: str) -> None:
        values = {"topic": topic, "limit": _BATCH}
        while len(await self._database.write(_SQL["forget_topic"], values, is_repeatable=True)) == _BATCH:
            pass

    async def tidy(self) -> None:
        """Delete keys whose window is over."""
        values = {"window": self._window, "limit": _BATCH}
        while len(await self._database.write(_SQL["forget"], values, is_repeatable=True)) == _BATCH:
            pass


def _columns(claims: Iterable[Claim]) -> dict[str, list[str]]:
    batch = list(claims)
    return {"topics": [claim.topic for claim in batch], "keys": [claim.key for claim in batch]}


def _merge(claim: Claim, before: _ClaimResult, now: _ClaimResult) -> _ClaimResult:
    """Return None if the first claim succeeded: the second finds only the record of the first."""
    return None if before is None and now == KeyRecord(claim.digest, None) else now
