"""Messages that an operator resends to a consumer, in addition to its batches and without a receipt.

As in the original, they are held in the memory of this process and delivered once. A restart or a lost response loses
the resend, not the message. A seek is the reliable alternative.
"""

from collections.abc import Sequence

from mqgate.core.entries import Group
from mqgate.core.message import Message
from mqgate.http.compat.mq.envelope import FAILED, Refusal

_MAX_PENDING = 32


class Resends:
    """Messages to add to the next fetch of a consumer."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], list[Message]] = {}

    def add(self, group: Group, client: str, message: Message) -> None:
        """Add a message to the next fetch of a group (client "") or of a broadcast client."""
        pending = self._pending.setdefault((group.name, client), [])
        if len(pending) >= _MAX_PENDING:
            raise Refusal(FAILED, f"{_MAX_PENDING} messages are pending for the next fetch of consumer:{group.name}")
        pending.append(message)

    def take(self, group: Group, client: str) -> Sequence[Message]:
        pending = self._pending.pop((group.name, client), None) if self._pending else None
        # Meanwhile the group may have been registered again for another topic.
        return [message for message in pending if message.topic == group.topic] if pending else ()
