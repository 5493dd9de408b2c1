"""Transactional outbox: a message that is published if, and only if, the business transaction commits.

    add       writes the message to a table, in the transaction of the caller
    claim     a relay leases the oldest rows, at most one per topic and key
    publish   with the id of the row as idempotency key
    delete    after the gateway has stored the message; a refused row stays, with its reason

A relay that dies after a publish leaves its row, which another relay publishes again with the same idempotency key. The
gateway stores it once within its idempotency window, and with the same message id after it. A row blocks the later rows
of its key until it is deleted, so messages of a key are stored in the order of their numbers. That is the order of
commits only if the business transactions of a key run one after the other.
"""

from mqgate.client.database import DatabaseUnusable
from mqgate.client.outbox.outbox import Outbox, RefusedRow, create_statements
from mqgate.client.outbox.relay import Relay

__all__ = ["DatabaseUnusable", "Outbox", "RefusedRow", "Relay", "create_statements"]
