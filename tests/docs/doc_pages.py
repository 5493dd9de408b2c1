"""The pages of the documentation and their parts."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return [text for _, found, text in _BLOCK.findall(page.read_text("utf-8")) if found == language]


def without_blocks(page: Path) -> str:
    return _BLOCK.sub("", page.read_text("utf-8"))


def run(*command: str, directory: Path | None = None, script: str | None = None) -> str:
    """Run a program that must succeed, and return its output."""
    done = subprocess.run(  # noqa: S603 - our own pages and examples
        command, input=script, cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
