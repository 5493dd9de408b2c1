"""Messages that an operator wants a consumer to see once more, beside its batches and without a receipt.

Held in this process's memory and handed out once, as in the original: a restart, or an answer that never
arrives, loses the wish, not the message. Whoever needs more than that seeks.
"""

from collections.abc import Sequence

from mqgate.core.entries import Group
from mqgate.core.message import Message
from mqgate.http.compat.mq.envelope import FAILED, Refusal

_MAX_PENDING = 32


class Resends:
    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], list[Message]] = {}

    def add(self, group: Group, client: str, message: Message) -> None:
        """Hand a message to the next fetch of a group (client "") or of a broadcast client."""
        waiting = self._waiting.setdefault((group.name, client), [])
        if len(waiting) >= _MAX_PENDING:
            raise Refusal(FAILED, f"{_MAX_PENDING} messages already wait for the next fetch of consumer:{group.name}")
        waiting.append(message)

    def take(self, group: Group, client: str) -> Sequence[Message]:
        waiting = self._waiting.pop((group.name, client), None) if self._waiting else None
        # The name may have been registered anew, on another topic, since the wish.
        return [message for message in waiting if message.topic == group.topic] if waiting else ()
