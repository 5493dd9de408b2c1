# ruff: noqa: INP001 - a program beside the locks that it reads, not a package
"""Look up known vulnerabilities of locked packages: `python requirements/audit.py LOCK...`, run by `make audit`.

pip-audit reports success after it has skipped packages that it could not look up. Here a locked package passes only if
pip-audit looked up that version and found nothing.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["faults", "locked"]

_TIMEOUT = 900


def locked(text: str) -> dict[str, str]:
    """Return the versions of a lock by package. Markers are left out: pip-audit drops packages of other platforms."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE))


def faults(packages: Mapping[str, str], report: str) -> list[str]:
    """Return what speaks against the packages: known vulnerabilities, and packages that were not looked up."""
    results = {result["name"]: result for result in json.loads(report)["dependencies"]}
    if all("skip_reason" in result for result in results.values()):
        reason = next((result["skip_reason"] for result in results.values()), "empty report")
        return [f"no package was checked; is the vulnerability service reachable? {reason}"]
    found = []
    for name, version in packages.items():
        result = results.get(name, {"skip_reason": "pip-audit does not mention it"})
        if result.get("version") != version:
            found.append(f"{name} {version} was not checked: {result.get('skip_reason', 'another version was')}")
        for vulnerability in result.get("vulns", ()):
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
            found.append(f"{name} {version} has {vulnerability['id']}, fixed in {fixed}")
    return found


def _audit(lock: Path) -> list[str]:
    packages = locked(lock.read_text("utf-8"))
    if not packages:
        return ["no locked packages found"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write("".join(f"{name}=={version}\n" for name, version in packages.items()))
        pinned.flush()
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        done = subprocess.run(  # noqa: S603 - our own words
            [*command, "--format", "json", "-r", pinned.name],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    try:
        return faults(packages, done.stdout)
    except ValueError:
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        return [f"no package was checked; is the vulnerability service reachable? {reason}"]


def main(locks: Sequence[str]) -> int:
    count = 0
    for lock in locks:
        found = _audit(Path(lock))
        count += len(found)
        for fault in found:
            sys.stderr.write(f"{lock}: {fault}\n")
    sys.stderr.write(f"audit failed, {count} faults\n" if count else f"audit passed, {len(locks)} locks\n")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
