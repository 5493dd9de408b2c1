"""The result of one diagnostic check."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Name, status and explanation of one diagnostic check."""

    check: str
    status: Literal["ok", "warn", "fail"]
    detail: str
