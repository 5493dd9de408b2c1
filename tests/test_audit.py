"""`make audit` passes only if every locked package was looked up and has no known vulnerability."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[1] / "requirements" / "audit.py"
LOCK = """# make lock
flask==0.5 \\
    --hash=sha256:00
    # via -r requirements.in
jinja2==3.1.6 ; python_full_version < '3.11.3' \\
    --hash=sha256:00
"""
# As pip-audit 2.10 writes them.
VULNERABLE = {
    "name": "flask",
    "version": "0.5",
    "vulns": [{"id": "PYSEC-2019-179", "fix_versions": ["1.0"]}],
}
CLEAN = {"name": "jinja2", "version": "3.1.6", "vulns": []}
SKIPPED = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI and could not be audited: jinja2 (3.1.6)"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    """requirements/audit.py, which is a program and no package."""
    spec = importlib.util.spec_from_file_location("audit_locks", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _report(*results: object) -> str:
    return json.dumps({"dependencies": results, "fixes": []})


def test_every_package_of_a_lock_is_looked_up_whatever_its_marker(audit: ModuleType) -> None:
    """pip-audit leaves out packages for other platforms, and users have those platforms."""
    assert audit.locked(LOCK) == {"flask": "0.5", "jinja2": "3.1.6"}


def test_a_clean_package_passes(audit: ModuleType) -> None:
    """Otherwise the check would be of no use."""
    assert audit.faults({"jinja2": "3.1.6"}, _report(CLEAN)) == []


def test_a_vulnerability_is_reported_with_the_version_that_fixes_it(audit: ModuleType) -> None:
    """The reader needs to know what to upgrade to."""
    found = audit.faults(audit.locked(LOCK), _report(VULNERABLE, CLEAN))

    assert found == ["flask 0.5 has PYSEC-2019-179, fixed in 1.0"]


@pytest.mark.parametrize("results", [(SKIPPED,), (), ({**CLEAN, "version": "3.1.5"},)])
def test_a_package_that_was_not_looked_up_is_a_fault(audit: ModuleType, results: tuple[object, ...]) -> None:
    """pip-audit skips what it cannot find, and says that there are no known vulnerabilities."""
    (found,) = audit.faults({"jinja2": "3.1.6", "flask": "0.5"}, _report({**VULNERABLE, "vulns": []}, *results))

    assert found.startswith("jinja2 3.1.6 was not checked")


@pytest.mark.parametrize("results", [(SKIPPED,), ()])
def test_a_report_without_any_result_asks_for_the_service(audit: ModuleType, results: tuple[object, ...]) -> None:
    """One line explains an unreachable service better than one for each package."""
    (found,) = audit.faults(audit.locked(LOCK), _report(*results))

    assert found.startswith("no package was checked; is the vulnerability service reachable?")


def test_without_pip_audit_the_program_fails_and_says_why(tmp_path: Path) -> None:
    """The exit code decides in CI; an audit that could not run must not pass."""
    lock = tmp_path / "lock.txt"
    lock.write_text(LOCK)

    done = subprocess.run([sys.executable, PROGRAM, lock], capture_output=True, text=True, check=False)  # noqa: S603

    assert done.returncode == 1
    assert f"{lock}: no package was checked" in done.stderr
    assert "audit failed" in done.stderr
