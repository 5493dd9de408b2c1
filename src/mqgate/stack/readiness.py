"""Readiness of a server, and the reason if it does not start."""

from pathlib import Path

from mqgate.stack.errors import PartFailed, PortTaken
from mqgate.stack.part import Part
from mqgate.stack.probe import is_listed, is_starting, register

__all__ = ["failure", "is_ready", "speed_up"]

_ERROR_WORDS = ("Exception", "Error", "FATAL", "could not", "ERROR")


def is_ready(part: Part, log: Path, name_server: Part | None) -> bool:
    """Return whether the server logged its ready line. A broker must also be listed and report its runtime."""
    if part.ready_line not in _output(log):
        return False
    if part.kind != "broker":
        return True
    if name_server is None or not is_listed(("127.0.0.1", name_server.port), part.name, part.address):
        return False
    return not is_starting(("127.0.0.1", part.port))


def speed_up(part: Part, log: Path) -> None:
    """Make a started broker register at once."""
    if part.kind == "broker" and part.ready_line in _output(log):
        register(("127.0.0.1", part.port), part.asked["settings"].get("brokerPermission", "6"))


def failure(part: Part, log: Path, what: str) -> PartFailed:
    """Return the error of a server that did not start."""
    output = _output(log)
    if "already in use" in output or "BindException" in output:
        return PortTaken(f"{part.name} {what}: port {part.port} or an adjacent one is in use (see {log})")
    lines = output.splitlines()
    errors = [line for line in lines if any(word in line for word in _ERROR_WORDS)] or lines[-1:]
    return PartFailed(f"{part.name} {what}: {' '.join(errors[:1])} (see {log})")


def _output(log: Path) -> str:
    try:
        return log.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
