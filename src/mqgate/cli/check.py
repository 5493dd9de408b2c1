"""What an examination says: one thing looked at, and what became of it."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at."""

    check: str
    status: Literal["ok", "warn", "fail"]
    detail: str
