"""One server of a stack, as stored in `stack.json`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Kind", "Part", "load_parts", "save_parts"]

Kind = Literal["name-server", "broker", "proxy", "redis", "postgres"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Command of a server and its current process."""

    name: str
    kind: Kind
    port: int
    command: tuple[str, ...]
    ready_line: str
    # Account of the process, if it is not the current one.
    user: str | None = None
    # The requested configuration, to detect whether a later `up` differs.
    asked: Mapping[str, Any] = field(default_factory=dict)
    pid: int | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def load_parts(path: Path) -> dict[str, Part]:
    """Return all parts by name, in start order, or none if the file does not exist."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return {part["name"]: Part(**{**part, "command": tuple(part["command"])}) for part in found["parts"]}


def save_parts(path: Path, parts: Mapping[str, Part]) -> None:
    """Replace the file atomically."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps({"parts": [asdict(part) for part in parts.values()]}, indent=2), "utf-8")
    fresh.replace(path)
