"""The jars of RocketMQ are downloaded once, and only released ones are used."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqgate.stack import ROCKETMQ_VERSION, StackUnavailable, find_java, jars

CHECKSUMS = {"a.jar": hashlib.sha256(b"").hexdigest()}

# Fails as a registry in trouble does, unless it is asked again with -U.
MAVEN = """#!/bin/sh
echo "$@" >> "$MAVEN_CALLS"
case "$*" in *" -U") ;; *) echo '[ERROR] could not find artifact'; exit 1 ;; esac
for each in "$@"; do
    case "$each" in -DoutputDirectory=*) mkdir -p "${each#*=}"; sleep 1; touch "${each#*=}/a.jar" ;; esac
done
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty cache and a Maven that records its calls."""
    if shutil.which("java") is None:
        monkeypatch.setenv("PATH", f"{_java(tmp_path)}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir(exist_ok=True)
    maven = tmp_path / "bin" / "mvn"
    maven.write_text(MAVEN)
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MAVEN_CALLS", str(tmp_path / "calls"))
    return tmp_path


def _lib(environment: Path) -> Path:
    return environment / "cache" / "mqgate" / f"rocketmq-{ROCKETMQ_VERSION}" / "lib"


def _java(directory: Path) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    return java.parent


def test_two_processes_download_the_jars_once(environment: Path) -> None:
    """A test run starts many workers at once, and an incomplete directory would break all of them."""
    program = f"from mqgate.stack import jars; print(*jars(checksums={CHECKSUMS}).iterdir())"
    workers = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]  # noqa: S603 - our own words

    said = [worker.communicate(timeout=60)[0].strip() for worker in workers]

    assert said == [str(_lib(environment) / "a.jar")] * 2
    calls = (environment / "calls").read_text().splitlines()
    assert ["-U" in call for call in calls] == [False, True]


def test_a_failed_download_leaves_no_complete_directory(environment: Path) -> None:
    """The next attempt must download again."""
    maven = environment / "bin" / "mvn"
    maven.write_text(MAVEN.replace("-U", "never"))

    with pytest.raises(StackUnavailable, match="could not find artifact"):
        jars(checksums=CHECKSUMS)
    maven.write_text(MAVEN)

    assert [path.name for path in jars(checksums=CHECKSUMS).iterdir()] == ["a.jar"]


def test_a_download_that_differs_from_its_checksum_is_refused_and_not_kept(environment: Path) -> None:
    """A manipulated file must not be executed."""
    with pytest.raises(StackUnavailable, match=r"^a\.jar .* has the SHA-256 \w{64}, expected 0{64}"):
        jars(checksums={"a.jar": "0" * 64})

    assert not _lib(environment).exists()


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [("a.jar", b"tampered", "has the SHA-256"), ("b.jar", b"added", "is not an artifact"), ("a.jar", None, "missing")],
)
def test_a_file_that_was_changed_after_the_download_is_refused(
    environment: Path, name: str, content: bytes | None, fault: str
) -> None:
    """The directory is used for months, and a JVM loads every jar in it."""
    path = jars(checksums=CHECKSUMS) / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(StackUnavailable, match=f"^{name} of RocketMQ .*{fault}"):
        jars(checksums=CHECKSUMS)


def test_without_an_argument_the_checksums_of_the_release_count(environment: Path) -> None:
    """The committed list decides, not the download."""
    with pytest.raises(StackUnavailable, match=f"^a.jar of RocketMQ {ROCKETMQ_VERSION} is not an artifact"):
        jars()


def test_java_home_takes_precedence_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is an explicit choice of the user."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path).parent))

    assert find_java() == tmp_path / "bin" / "java"
