"""Idempotency keys in SQLite.

Where the messages are stored in the same database, a claim and its answer need not wait for the disk. Transactions
reach it in order: when the message is there, so is its claim; and a claim whose answer was lost with the power is
looked up by the message's id, as after any crash.
"""

from collections.abc import Sequence
from datetime import timedelta

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.ports.idempotency import Claim, KeyRecord

_SQL = queries("idempotency")
_FORGOTTEN_AT_ONCE = 2_000


class SqliteIdempotencyStore:
    def __init__(self, engine: Engine, window: timedelta, *, is_log_elsewhere: bool = False) -> None:
        self._engine = engine
        self._record = engine.write if is_log_elsewhere else engine.step
        self._window_ms = window // timedelta(milliseconds=1)

    async def claim(self, claims: Sequence[Claim]) -> Sequence[KeyRecord | None]:
        return await self._record(lambda tx: [self._claim(tx, claim) for claim in claims])

    def _claim(self, tx: Transaction, claim: Claim) -> KeyRecord | None:
        row = tx.one(_SQL["find"], (claim.topic, claim.key, tx.now_ms - self._window_ms))
        if row is not None and (row[1] is not None or row[0] != claim.digest):
            return KeyRecord(row[0], row[1])
        tx.execute(_SQL["claim"], (*claim, tx.now_ms))
        return None if row is None else KeyRecord(claim.digest, None)

    async def complete(self, claims: Sequence[Claim], answers: Sequence[str]) -> None:
        def job(tx: Transaction) -> None:
            for claim, answer in zip(claims, answers, strict=True):
                tx.execute(_SQL["complete"], (answer, claim.topic, claim.key))

        await self._record(job)

    async def release(self, claims: Sequence[Claim]) -> None:
        def job(tx: Transaction) -> None:
            for claim in claims:
                tx.execute(_SQL["release"], (claim.topic, claim.key))

        await self._record(job)

    async def forget(self, topic: str) -> None:
        def job(tx: Transaction) -> None:
            tx.execute(_SQL["forget_topic"], (topic,))

        await self._engine.write(job)

    async def tidy(self) -> None:
        """Forget keys whose window is over."""

        def job(tx: Transaction) -> int:
            tx.execute(_SQL["forget"], (tx.now_ms - self._window_ms, _FORGOTTEN_AT_ONCE))
            return int(tx.one("SELECT changes()")[0])

        while await self._engine.write(job):
            pass
