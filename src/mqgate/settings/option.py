"""The declaration of an option, and the error of all invalid options."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

__all__ = ["SettingsInvalid", "option"]


class SettingsInvalid(Exception):
    """All faults of the settings, one line each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def option(default: Any, doc: str, *, secret: bool = False) -> Any:
    """Return the field of an option. A secret is masked in `repr` and in error texts."""
    return field(default=default, repr=not secret, metadata={"doc": doc, "secret": secret})
