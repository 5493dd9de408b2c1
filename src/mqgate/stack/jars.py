"""RocketMQ from its Maven artifacts, downloaded once for all stacks of a user.

`<cache>/mqgate/rocketmq-<version>/lib` is complete if it exists: Maven fills another directory, which is
renamed under a lock when it is complete. Two processes that need it at the same time download it once.

Every file is compared with its SHA-256 in `rocketmq-<version>.sha256` before each use, which takes 0.1 s. A JVM loads
every jar of the directory, so a file that is not in the list is refused as well.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

from mqgate.stack.errors import StackUnavailable
from mqgate.stack.java import find_java, find_maven
from mqgate.stack.lock import locked

__all__ = ["ROCKETMQ_VERSION", "jars"]

# Exact, never a range: some versions (5.5.1, 5.3.4) lack modules. Measured with three brokers on
# two cores: a boot costs 5.5 s of CPU per broker (5.3.3: 3.5 s), idle both take 0.11 of a core each. But a broker that
# was killed and started again is listed after 3 s, with 5.3.3 after 12 s.
# A new version needs a new list: cd ~/.cache/mqgate/rocketmq-VERSION/lib && sha256sum * > .../rocketmq-VERSION.sha256
ROCKETMQ_VERSION = "5.5.0"
# The plug-in runs with the rights of the user, so its version is fixed too.
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
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
_DOWNLOAD_TIMEOUT = 900.0


def jars(*, progress: Callable[[str], None] = lambda _: None, checksums: Mapping[str, str] | None = None) -> Path:
    """Return the directory with RocketMQ and its dependencies, for `-cp '<directory>/*'`; download it if it is missing.

    Raise StackUnavailable if a file differs from its checksum. `checksums` replaces the list of this version.
    """
    expected = _recorded_checksums() if checksums is None else checksums
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqgate"
    home = cache / f"rocketmq-{ROCKETMQ_VERSION}"
    lib = home / "lib"
    if not lib.is_dir():
        with locked(cache / f"rocketmq-{ROCKETMQ_VERSION}.lock"):
            if not lib.is_dir():
                # The error of Maven for a missing Java is less clear.
                find_java()
                maven = find_maven()
                progress(f"downloading RocketMQ {ROCKETMQ_VERSION} with Maven, about 100 MB, once")
                unfinished = cache / f"rocketmq-{ROCKETMQ_VERSION}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                _fetch(maven, unfinished)
                _verify(unfinished / "lib", expected)
                unfinished.rename(home)
    _verify(lib, expected)
    return lib


def _recorded_checksums() -> dict[str, str]:
    text = resources.files(__package__).joinpath(f"rocketmq-{ROCKETMQ_VERSION}.sha256").read_text("utf-8")
    return {name: checksum for checksum, name in map(str.split, text.splitlines())}


def _verify(lib: Path, expected: Mapping[str, str]) -> None:
    found = {path.name: _checksum(path) for path in sorted(lib.iterdir())}
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) == expected.get(name):
            continue
        if name not in found:
            fault = "is missing"
        elif name not in expected:
            fault = "is not an artifact of this version"
        else:
            fault = f"has the SHA-256 {found[name]}, expected {expected[name]}"
        raise StackUnavailable(
            f"{name} of RocketMQ {ROCKETMQ_VERSION} {fault}: nothing of {lib} was started. "
            "Find out why; then delete the folder, and the file in ~/.m2/repository, to fetch them again"
        )


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(maven: Path, directory: Path) -> None:
    directory.mkdir(parents=True)
    pom = directory / "pom.xml"
    pom.write_text(_POM.format("\n".join(_DEPENDENCY.format(module, ROCKETMQ_VERSION) for module in _MODULES)), "utf-8")
    # -C: a download that differs from the checksum beside it in the repository fails.
    command = [str(maven), "-B", "-C", "-ntp", "-q", "-f", str(pom), _COPY]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={directory / 'lib'}"]
    output = ""
    # Maven caches failed look-ups; -U repeats them.
    for update in ([], ["-U"]):
        try:
            done = subprocess.run(  # noqa: S603 - Maven of the user
                [*command, *update], capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            output = f"no result after {_DOWNLOAD_TIMEOUT:.0f} s"
            continue
        if done.returncode == 0:
            return
        output = done.stdout + done.stderr
    faults = [line for line in output.splitlines() if "ERROR" in line] or output.splitlines()[-1:]
    raise StackUnavailable(
        f"Maven could not download RocketMQ {ROCKETMQ_VERSION} (it needs the network once, or a mirror in "
        f"~/.m2/settings.xml): {' '.join(faults[:1])}"
    )
