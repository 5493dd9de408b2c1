"""SQLite alone: insert the same rows into the same table, with one commit (and fsync) per batch."""

import tempfile
import time
from importlib import resources
from pathlib import Path

import apsw


def messages_per_second(batch: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory(prefix="mqgate-bench-") as directory:
        connection = apsw.Connection(str(Path(directory) / "bare.db"))
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        schema = resources.files("mqgate.adapters.sqlite").joinpath("schema", "0001_first.sql").read_text("utf-8")
        connection.execute(schema)
        insert = "INSERT INTO message (position, id, key, tag, properties, stored_at, body) VALUES " + ", ".join(
            ["(?, ?, NULL, NULL, NULL, ?, ?)"] * batch
        )
        body = b"x" * 300
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            values: list[object] = []
            for number in range(done, done + batch):
                values += [(number % 8) << 40 | number // 8, f"{number:032x}", number, body]
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(insert, values)
            connection.execute("COMMIT")
            done += batch
        rate = done / (time.perf_counter() - began)
        connection.close()
        return rate
