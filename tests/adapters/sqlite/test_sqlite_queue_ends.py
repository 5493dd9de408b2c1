"""Next offsets and sizes of queues, when several jobs share one transaction."""

import asyncio
import threading

from mqgate.adapters.sqlite.engine import Engine
from mqgate.adapters.sqlite.message_log import SqliteMessageLog
from mqgate.adapters.sqlite.retention import SqliteRetention
from mqgate.adapters.sqlite.threads import Transaction
from mqgate.testing.samples import a_draft, queues


async def test_two_jobs_of_a_transaction_count_the_bytes_of_a_queue_once(engine: Engine) -> None:
    """Bytes that are counted twice would let retention by size delete messages too early."""
    log = SqliteMessageLog(engine)
    await log.create("orders", 1)
    await log.append("orders", [a_draft(b"x" * 100)])

    def record(transaction: Transaction) -> None:
        log.ends.record(transaction)

    await asyncio.gather(engine.write(record), engine.write(record))
    deleted = await SqliteRetention(engine, log).delete_excess("orders", 150)

    assert deleted == 0


async def test_a_topic_that_is_dropped_right_after_an_append_leaves_no_rows(engine: Engine) -> None:
    """Both may share a transaction. Rows without a queue would never be deleted."""
    log = SqliteMessageLog(engine)
    await log.create("orders", 2)
    gate = threading.Event()

    async with asyncio.TaskGroup() as tasks:
        # Jobs that arrive while this one runs share the next transaction.
        tasks.create_task(engine.write(lambda _: gate.wait(10)))
        tasks.create_task(log.append("orders", [a_draft() for _ in range(10)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.create_task(log.drop("orders"))
        await asyncio.sleep(0)
        gate.set()

    await log.create("orders", 2)
    await log.append("orders", [a_draft(queue=0)])

    assert (await engine.read(lambda view: view.one("SELECT count(*) FROM message")))[0] == 1
    assert (await log.bounds("orders")).queues == queues(1, 0)
    await SqliteRetention(engine, log).delete_excess("orders", 0)
    assert (await log.bounds("orders")).queues == queues((1, 1), 0)
