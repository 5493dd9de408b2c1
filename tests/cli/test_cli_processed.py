"""`mqgate processed`: the records of idempotent consumers as a command."""

import json
import sqlite3

from mqgate.client.idempotent import Processed


def test_old_records_are_deleted(run, tmp_path):
    """A scheduled job keeps the table small."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    Processed("billing").create_table(connection)
    Processed("billing").mark_done(connection, "m1")
    connection.execute("UPDATE mqgate_processed SET done_at = done_at - 7200")
    Processed("billing").mark_done(connection, "m2")
    connection.commit()
    connection.close()

    cleaned = run("--json", "processed", "clean", "--database", f"sqlite:///{path}", "--older-than", "1h")

    assert json.loads(cleaned.stdout) == {"deleted": 1}
