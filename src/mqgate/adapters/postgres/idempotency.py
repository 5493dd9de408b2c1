"""Idempotency keys in PostgreSQL: of gateways that meet under one key, one publishes and the others wait for it.

    nobody has the key, or its window is over      -> yours
    it has an answer, or was used for another body -> that
    our own earlier publish ended without answer   -> yours, look first
    another gateway's, which is gone, or had time enough to publish (`sending`) -> yours, look first
    another gateway's, which is publishing now     -> wait: it answers, lets go, dies, or has had its time

`sending` must be longer than a publish may take, from the claim to the last answer of a broker. Then two gateways
send under one key only after the first was cut off from its broker in mid-send: an `unknown`.
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
_AT_ONCE = 2_000
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.2


class _Others(Enum):
    PUBLISH = "another gateway is publishing under the key"


_Found = KeyRecord | None | Literal[_Others.PUBLISH]


class _Done(NamedTuple):
    claim: Claim
    answer: str


class PostgresIdempotencyStore:
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
        self._claims: StatementBatcher[Claim, _Found] = StatementBatcher(self._claim, database.spawn)
        self._answers: StatementBatcher[_Done, None] = StatementBatcher(self._complete, database.spawn)

    async def claim(self, claims: Sequence[Claim]) -> Sequence[KeyRecord | None]:
        loop = asyncio.get_running_loop()
        found = await self._claims.ask(claims)
        # By the store's clock, others have had their time by then.
        end = loop.time() + self._sending.total_seconds() + _LONGEST_PAUSE
        pause = _FIRST_PAUSE
        while _Others.PUBLISH in found and loop.time() < end:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            # All of them: the time that we have for those that are ours begins anew.
            again = await self._claims.ask(claims)
            found = [_still(*each) for each in zip(claims, found, again, strict=True)]
        return [
            KeyRecord(claim.digest, None) if each is _Others.PUBLISH else each
            for claim, each in zip(claims, found, strict=True)
        ]

    async def _claim(self, claims: Sequence[Claim]) -> Sequence[_Found]:
        found: dict[int, _Found] = {}
        while len(found) < len(claims):
            # A statement cannot change a row twice: a key that comes again has its turn in the next one.
            turn: dict[tuple[str, str], int] = {}
            for index, claim in enumerate(claims):
                if index not in found:
                    turn.setdefault((claim.topic, claim.key), index)
            found |= await self._claim_each_once({index: claims[index] for index in turn.values()})
        return [found[index] for index in range(len(claims))]

    async def _claim_each_once(self, claims: dict[int, Claim]) -> dict[int, _Found]:
        """What becomes of these now; what somebody let go of in between is left out."""
        values = {
            **_columns(claims.values()),
            "digests": [claim.digest for claim in claims.values()],
            "ids": [claim.id for claim in claims.values()],
            "owner": self._owner,
            "sending": self._sending,
            "window": self._window,
        }
        taken = {(topic, key): uses for topic, key, uses in await self._database.write(_SQL["claim"], values)}
        found: dict[int, _Found] = {}
        others: dict[int, Claim] = {}
        for index, claim in claims.items():
            uses = taken.get((claim.topic, claim.key))
            if uses is None:
                others[index] = claim
            else:
                found[index] = None if uses == 1 else KeyRecord(claim.digest, None)
        if others:
            rows = await self._database.read(_SQL["find"], _columns(others.values()))
            known = {(topic, key): KeyRecord(digest, answer) for topic, key, digest, answer in rows}
            for index, claim in others.items():
                there = known.get((claim.topic, claim.key))
                if there is not None:
                    is_over = there.answer is not None or there.digest != claim.digest
                    found[index] = there if is_over else _Others.PUBLISH
        return found

    async def complete(self, claims: Sequence[Claim], answers: Sequence[str]) -> None:
        await self._answers.ask([_Done(*each) for each in zip(claims, answers, strict=True)])

    async def _complete(self, done: Sequence[_Done]) -> Sequence[None]:
        claims = [each.claim for each in done]
        answers = [each.answer for each in done]
        values = {**_columns(claims), "digests": [claim.digest for claim in claims], "answers": answers}
        await self._database.write(_SQL["complete"], values, is_repeatable=True)
        return [None] * len(done)

    async def release(self, claims: Sequence[Claim]) -> None:
        values = {**_columns(claims), "owner": self._owner}
        await self._database.write(_SQL["release"], values, is_repeatable=True)

    async def forget(self, topic: str) -> None:
        values = {"topic": topic, "most": _AT_ONCE}
        while len(await self._database.write(_SQL["forget_topic"], values, is_repeatable=True)) == _AT_ONCE:
            pass

    async def tidy(self) -> None:
        """Forget keys whose window is over."""
        values = {"window": self._window, "most": _AT_ONCE}
        while len(await self._database.write(_SQL["forget"], values, is_repeatable=True)) == _AT_ONCE:
            pass


def _columns(claims: Iterable[Claim]) -> dict[str, list[str]]:
    some = list(claims)
    return {"topics": [claim.topic for claim in some], "keys": [claim.key for claim in some]}


def _still(claim: Claim, before: _Found, now: _Found) -> _Found:
    """What was ours at the first look is so without a warning, though the second finds it begun: by ourselves."""
    return None if before is None and now == KeyRecord(claim.digest, None) else now
