"""One server of a stack, as `stack.json` keeps it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Kind", "Part", "load_parts", "save_parts"]

Kind = Literal["name-server", "broker", "proxy", "redis", "postgres"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How a server is started, always in the same way, and which process it is now."""

    name: str
    kind: Kind
    port: int
    command: tuple[str, ...]
    ready_line: str
    # Whom it runs as, if not as us.
    user: str | None = None
    # What was asked for, to tell whether a later `up` asks for something else.
    asked: Mapping[str, Any] = field(default_factory=dict)
    pid: int | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def load_parts(path: Path) -> dict[str, Part]:
    """All parts by name, in the order of their start; none if there is no file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return {each["name"]: Part(**{**each, "command": tuple(each["command"])}) for each in found["parts"]}


def save_parts(path: Path, parts: Mapping[str, Part]) -> None:
    """Whoever reads at this moment sees the old file or the new one, whole."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps({"parts": [asdict(part) for part in parts.values()]}, indent=2), "utf-8")
    fresh.replace(path)
