"""Reads options from a file, from environment variables and from flags."""

import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from mqgate.settings.option import SettingsInvalid

if TYPE_CHECKING:
    from mqgate.settings.tree import Settings

__all__ = ["Loader", "groups_of"]

_ENTRIES = ("topic", "producer", "group")
# Names of release 0.1, accepted until the next release.
_DEPRECATED = {
    ("log", "engine"): ("messages", "engine"),
    ("log", "level"): ("logging", "level"),
    ("log", "format"): ("logging", "format"),
    ("log", "requests"): ("logging", "requests"),
}
_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_MAX_DURATION = timedelta(days=36_500)


def groups_of(tree: "type[Settings]") -> Mapping[str, Any]:
    """Return the option groups by their name in the file."""
    return {group.name: group.default_factory for group in fields(tree) if group.default_factory is not MISSING}


class Loader:
    """Settings under construction, with the faults found so far."""

    def __init__(self, defaults: "Settings") -> None:
        self._settings = defaults
        self._groups = groups_of(type(defaults))
        self._faults: list[str] = []
        # Where each option was last set under its current name, and under a deprecated one.
        self._current: dict[tuple[str, str], str] = {}
        self._deprecated: dict[tuple[str, str], str] = {}

    def read_file(self, path: Path) -> None:
        try:
            tree = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            self._faults.append(f"{path}: {error}")
            return
        for group, values in tree.items():
            if group in _ENTRIES:
                if isinstance(values, list) and all(isinstance(entry, dict) for entry in values):
                    self._replace(group, tuple(values))
                else:
                    self._faults.append(f"{path}: write [[{group}]], one table for each entry")
            elif not isinstance(values, dict):
                self._faults.append(f"{path}: unknown setting {group}")
            else:
                for name, value in values.items():
                    self.set(group, name, value, f"{path}: [{group}] {name}")

    def read_variable(self, variable: str, text: str) -> None:
        lower = variable.removeprefix("MQGATE_").lower()
        for group in (*self._groups, *{group for group, _ in _DEPRECATED}):
            if lower.startswith(f"{group}_"):
                self.set(group, lower.removeprefix(f"{group}_"), text, variable)
                return
        self._faults.append(f"{variable}: unknown setting")

    def set(self, group: str, name: str, value: Any, where: str) -> None:
        """Set one option. `where` names the place of the value in error texts."""
        new = _DEPRECATED.get((group, name))
        if new is None:
            self._current[group, name] = where
        else:
            self._deprecated[new] = where
            group, name = new
        options: Any = getattr(self._settings, group) if group in self._groups else None
        hints = get_type_hints(type(options)) if options is not None else {}
        if name not in hints:
            self._faults.append(f"{where}: unknown setting")
            return
        try:
            parsed = _parse(hints[name], value)
        except (TypeError, ValueError, KeyError, OverflowError):
            is_secret = next(option for option in fields(options) if option.name == name).metadata["secret"]
            shown = "the value" if is_secret else repr(value)
            self._faults.append(f"{where}: {shown} is not {_type_name(hints[name])}")
            return
        self._replace(group, replace(options, **{name: parsed}))

    def finish(self, check: Callable[["Settings"], Sequence[str]]) -> "Settings":
        """Return the settings. Raise SettingsInvalid with every fault, including those that `check` finds."""
        for (group, name), where in self._deprecated.items():
            if (group, name) in self._current:
                fault = f"{where} and {self._current[group, name]} set the same option; remove the first (deprecated)"
                self._faults.append(fault)
        self._faults += check(self._settings)
        if self._faults:
            raise SettingsInvalid(self._faults)
        notes = tuple(
            f"{where} is deprecated; use [{group}] {name} or MQGATE_{group.upper()}_{name.upper()}"
            for (group, name), where in self._deprecated.items()
        )
        return replace(self._settings, deprecations=notes)

    def _replace(self, name: str, value: Any) -> None:
        changes: dict[str, Any] = {name: value}
        self._settings = replace(self._settings, **changes)


def _parse(wanted: Any, value: Any) -> Any:
    if get_origin(wanted) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(_parse(get_args(wanted)[0], part) for part in parts)
    if wanted is timedelta:
        return _parse_duration(value)
    if wanted is bool and isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    if isinstance(value, str) and wanted is not str:
        return wanted(value)
    if type(value) is not wanted:
        raise TypeError
    return value


def _parse_duration(value: Any) -> timedelta:
    """Return the duration of a number of seconds, or of text such as 500ms, 30s or 3d."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        duration = int(match[1]) * _UNITS[match[2]]
    elif isinstance(value, str) or type(value) in {int, float}:
        duration = timedelta(seconds=float(value))
    else:
        raise TypeError
    if duration > _MAX_DURATION:
        raise ValueError
    return duration


def _type_name(wanted: Any) -> str:
    if isinstance(wanted, types.GenericAlias):
        return "a list"
    duration = 'a duration: seconds, or text such as "500ms", "30s" or "3d", at most 36500 days'
    return {int: "a whole number", bool: "true or false", timedelta: duration}.get(wanted, "text")
