"""The lines that install mqgate, and what a plain install can do."""

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, blocks

_LINE = re.compile(r'pip install [^\n#]*"mqgate[^\n#]*')
LINES = sorted({line.strip() for page in PAGES for text in blocks(page, "") for line in _LINE.findall(text)})
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which `make wheel` has built a wheel."""
    directory = tmp_path_factory.mktemp("clone")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory / "dist"), cwd=ROOT)
    return directory


@pytest.fixture(scope="module")
def plain(clone: Path) -> Path:
    """Return the programs of an environment with the plain install, in the locked versions."""
    directory = clone / "plain"
    _run(str(UV), "venv", "--quiet", "--python", sys.executable, str(directory), cwd=clone)
    (wheel,) = (clone / "dist").iterdir()
    install = [str(UV), "pip", "install", "--quiet", "--python", str(directory)]
    install += ["-c", str(ROOT / "requirements" / "run.txt"), str(wheel)]
    try:
        # What `make dev` has fetched needs no index.
        _run(*install, "--offline", cwd=clone)
    except AssertionError:
        _run(*install, cwd=clone)
    return directory / "bin"


def _run(*command: str, cwd: Path, code: int = 0) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_the_wheel_is_built_as_the_pages_say() -> None:
    """The lines below need what `make wheel` leaves in dist/."""
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert "python -m hatchling build -t wheel -d dist" in makefile


@pytest.mark.parametrize("line", LINES)
def test_an_install_line_of_a_page_finds_the_wheel_and_its_extras(line: str, clone: Path, tmp_path: Path) -> None:
    """The package is on no index; dependencies, which are, are left out here."""
    venv.create(tmp_path / "venv", with_pip=True)
    pip = str(tmp_path / "venv" / "bin" / "pip")
    requirement = re.search(r'"(mqgate[^"]*)"', line)
    options = re.sub(r"^pip install|--no-cache-dir|venv-pack|\"[^\"]*\"", "", line).split()

    assert requirement
    installed = _run(pip, "install", "--no-index", "--no-deps", *options, requirement[1], cwd=clone)

    assert "Successfully installed mqgate" in installed
    assert "does not provide the extra" not in installed


def test_the_pages_have_install_lines() -> None:
    """The test above must not pass because it found none."""
    assert {'pip install --find-links dist "mqgate"', 'pip install --find-links dist "mqgate[server]"'} <= set(LINES)


def test_a_plain_install_has_every_command_of_a_client(plain: Path, gateway_url: str, tmp_path: Path) -> None:
    """An application server needs no Arrow and no SQLite to publish."""
    mqgate = str(plain / "mqgate")

    _run(mqgate, "--url", gateway_url, "topic", "create", "plain-install", cwd=tmp_path)
    stored = json.loads(_run(mqgate, "--url", gateway_url, "--json", "pub", "plain-install", "hello", cwd=tmp_path))
    listed = _run(mqgate, "--url", gateway_url, "topic", "list", cwd=tmp_path)
    checked = _run(mqgate, "--url", gateway_url, "doctor", cwd=tmp_path)

    assert stored["topic"] == "plain-install"
    assert "plain-install" in listed
    assert "responds" in checked


@pytest.mark.parametrize("command", [["serve"], ["--json", "serve", "--demo"], ["serve", "--port", "1", "--help"]])
def test_a_plain_install_names_the_line_that_installs_the_server(
    plain: Path, command: list[str], tmp_path: Path
) -> None:
    """A missing module says nothing to somebody who wants to serve."""
    refused = _run(str(plain / "mqgate"), *command, cwd=tmp_path, code=2)

    assert "mqgate[server]" in refused


def test_a_plain_install_lists_all_commands(plain: Path, tmp_path: Path) -> None:
    """One missing package must not hide the help of the other commands."""
    shown = _run(str(plain / "mqgate"), "--help", cwd=tmp_path)

    assert "Requires the server" in shown
    assert "topic" in shown
