"""The pages, and what is in them."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language, as they are printed."""
    return [text for _, found, text in _BLOCK.findall(page.read_text("utf-8")) if found == language]


def without_blocks(page: Path) -> str:
    return _BLOCK.sub("", page.read_text("utf-8"))


def run(*command: str, directory: Path | None = None, script: str | None = None) -> str:
    """What a program printed; it must end well."""
    done = subprocess.run(  # noqa: S603 - our own pages and examples
        command, input=script, cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
