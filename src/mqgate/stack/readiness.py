"""Is a server ready, and if it never will be, why."""

from pathlib import Path

from mqgate.stack.errors import PartFailed, PortTaken
from mqgate.stack.part import Part
from mqgate.stack.probe import announce, is_hesitating, is_listed

__all__ = ["failure", "hasten", "is_ready"]

_TELLING = ("Exception", "Error", "FATAL", "could not", "ERROR")


def is_ready(part: Part, log: Path, name_server: Part | None) -> bool:
    """Whether it said so; of a broker also whether it is listed and can tell of itself, because it says so before."""
    if part.ready_line not in _said(log):
        return False
    if part.kind != "broker":
        return True
    if name_server is None or not is_listed(("127.0.0.1", name_server.port), part.name, part.address):
        return False
    return not is_hesitating(("127.0.0.1", part.port))


def hasten(part: Part, log: Path) -> None:
    """Do what can be done for one that is not ready, but could be."""
    if part.kind == "broker" and part.ready_line in _said(log):
        announce(("127.0.0.1", part.port), part.asked["settings"].get("brokerPermission", "6"))


def failure(part: Part, log: Path, what: str) -> PartFailed:
    """What to raise for a server that did not come up."""
    said = _said(log)
    if "already in use" in said or "BindException" in said:
        return PortTaken(f"{part.name} {what}: somebody else has port {part.port} or one beside it (see {log})")
    lines = said.splitlines()
    telling = [line for line in lines if any(word in line for word in _TELLING)] or lines[-1:]
    return PartFailed(f"{part.name} {what}: {' '.join(telling[:1])} (see {log})")


def _said(log: Path) -> str:
    try:
        return log.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
