"""Notices that no response could carry yet.

A receive may find that a client was registered, that messages expired or that a queue was rewound. If its client has
disconnected, the next response of the same lease scope on this gateway carries the notice.
"""

from collections import OrderedDict
from typing import NamedTuple

__all__ = ["Notices", "PendingNotices"]

_MAX_SCOPES = 10_000


class Notices(NamedTuple):
    """Facts that a response reports besides its messages."""

    is_registered: bool = False
    expired: int = 0
    rewound: int = 0


class PendingNotices:
    """The pending notices of each lease scope. `by_scope` is public so that a receive can test it without a call."""

    def __init__(self) -> None:
        self.by_scope: OrderedDict[tuple[str, str], Notices] = OrderedDict()

    def add(self, scope: tuple[str, str], notices: Notices) -> None:
        """Keep notices for the next response of a scope."""
        if not any(notices):
            return
        before = self.by_scope.pop(scope, Notices())
        is_registered = notices.is_registered or before.is_registered
        self.by_scope[scope] = Notices(
            is_registered, notices.expired + before.expired, notices.rewound + before.rewound
        )
        if len(self.by_scope) > _MAX_SCOPES:
            self.by_scope.popitem(last=False)

    def take(self, scope: tuple[str, str]) -> Notices:
        """Return the notices of a scope and forget them."""
        return self.by_scope.pop(scope, Notices())

    def forget(self, group: str) -> None:
        """Forget the notices of a deleted group."""
        for scope in [scope for scope in self.by_scope if scope[0] == group]:
            del self.by_scope[scope]
