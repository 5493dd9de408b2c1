"""Idempotent consumer: a message that is delivered twice has its effect once.

    transaction   `mark_done` records the message in the transaction of its work: exactly one effect, also in a crash
    two phases    `guard` records "processing", with a lease, then "done": for work outside of the database

The record of the two phases:

    (none) --begin--> processing --finish--> done
               ^          |
               +--lease---+  the process died: another one begins again
               +--abandon-+  the handler failed

A record that is written before the work, without a lease, would lose the message of a process that dies in between.
"""

from mqgate.client.database import DatabaseUnusable
from mqgate.client.idempotent.processed import Processed, create_statements

__all__ = ["DatabaseUnusable", "Processed", "create_statements"]
