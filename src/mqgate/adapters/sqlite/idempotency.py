"""Idempotency keys in SQLite.

If the same database stores the messages, claims and responses do not wait for the disk. Transactions reach the disk in
order, so that a stored message always has its claim. If a power failure loses the response of a claim, the message is
looked up by its id, as after a crash.
"""

from collections.abc import Sequence
from datetime import timedelta

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.ports.idempotency import Claim, KeyRecord

_SQL = queries("idempotency")
_TIDY_ROWS = 2_000


class SqliteIdempotencyStore:
    """IdempotencyStore on the embedded engine. `is_log_elsewhere`: another store contains the messages."""

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

    async def complete(self, claims: Sequence[Claim], responses: Sequence[str]) -> None:
        def job(tx: Transaction) -> None:
            for claim, response in zip(claims, responses, strict=True):
                tx.execute(_SQL["complete"], (response, claim.topic, claim.key))

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
        """Delete keys whose window has passed."""

        def job(tx: Transaction) -> int:
            tx.execute(_SQL["forget"], (tx.now_ms - self._window_ms, _TIDY_ROWS))
            return int(tx.one("SELECT changes()")[0])

        while await self._engine.write(job):
            pass
