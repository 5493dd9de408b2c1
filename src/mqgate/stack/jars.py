"""RocketMQ from its released Maven artifacts, fetched once for all stacks of a user.

`<cache>/mqgate/rocketmq-<version>/lib` is complete if it exists: Maven fills a folder beside it, which is renamed
under a lock when it is whole. Two processes that need it at the same time fetch it once.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from mqgate.stack.errors import StackUnavailable
from mqgate.stack.java import find_java, find_maven
from mqgate.stack.lock import locked

__all__ = ["ROCKETMQ_VERSION", "jars"]

# Exact, never a range: of some versions (5.5.1, 5.3.4) not all modules are to be had. Measured with three brokers on
# two cores: a boot costs 5.5 s of CPU per broker (5.3.3: 3.5 s), idle both take 0.11 of a core each. But a broker that
# was killed and started again is listed after 3 s, with 5.3.3 after 12 s.
ROCKETMQ_VERSION = "5.5.0"
# `tools` and `client` for Java programs beside the stack, `proxy` for gRPC clients.
_MODULES = ("namesrv", "broker", "tools", "client", "proxy")
_DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{}</artifactId>"
    "<version>{}</version></dependency>"
)
_POM = """<project>
<modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>rocketmq-stack</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
{}
</dependencies>
</project>
"""
_PATIENCE = 900.0


def jars(version: str = ROCKETMQ_VERSION, *, progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with RocketMQ and all that it needs, for `-cp '<folder>/*'`; fetched if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqgate"
    home = cache / f"rocketmq-{version}"
    lib = home / "lib"
    if lib.is_dir():
        return lib
    with locked(cache / f"rocketmq-{version}.lock"):
        if not lib.is_dir():
            # Maven would tell of a missing Java in its own way.
            find_java()
            maven = find_maven()
            progress(f"fetching RocketMQ {version} by Maven, about 100 MB, once")
            unfinished = cache / f"rocketmq-{version}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            _fetch(maven, version, unfinished)
            unfinished.rename(home)
    return lib


def _fetch(maven: Path, version: str, directory: Path) -> None:
    directory.mkdir(parents=True)
    pom = directory / "pom.xml"
    pom.write_text(_POM.format("\n".join(_DEPENDENCY.format(module, version) for module in _MODULES)), "utf-8")
    command = [str(maven), "-B", "-ntp", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={directory / 'lib'}"]
    told = ""
    # Maven remembers what it did not find; -U asks again.
    for again in ([], ["-U"]):
        try:
            done = subprocess.run(  # noqa: S603 - what the user installed
                [*command, *again], capture_output=True, text=True, timeout=_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            told = f"no end after {_PATIENCE:.0f} s"
            continue
        if done.returncode == 0:
            return
        told = done.stdout + done.stderr
    faults = [line for line in told.splitlines() if "ERROR" in line] or told.splitlines()[-1:]
    raise StackUnavailable(
        f"Maven could not fetch RocketMQ {version} (it needs the network once, or a mirror in ~/.m2/settings.xml): "
        f"{' '.join(faults[:1])}"
    )
