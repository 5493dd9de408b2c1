"""The glossary is the vocabulary of the project: its code names exist, and its retired words are not used."""

import re
from pathlib import Path

import pytest
from doc_pages import ROOT, without_blocks

GLOSSARY = ROOT / "docs" / "glossary.md"
MAX_COLUMNS = 120
_ROW = re.compile(r"^\| (.+?) \| (.+?) \|", re.MULTILINE)
_LINK_LINE = re.compile(r"[-*\d. ]*\[[^\]]*\]\([^)]*\)[.,;]?$")

# Files that contain a retired word. `redis/scripts`, ADR 18 and use-redis.md name the stored field `calm`; CHANGELOG.md
# names a method that was renamed.
RETIRED_NOT_YET = {
    "CHANGELOG.md",
    "docs/adr/0018-leases-in-redis-by-scripts.md",
    "docs/architecture.md",
    "docs/how-to/use-redis.md",
    "src/mqgate/adapters/redis/scripts/message_fast_path.lua",
    "src/mqgate/adapters/redis/scripts/message_state.lua",
    "src/mqgate/adapters/redis/scripts/queue_acquire.lua",
    "src/mqgate/adapters/redis/scripts/queue_fast_path.lua",
    "src/mqgate/adapters/redis/scripts/queue_state.lua",
    "src/mqgate/adapters/redis/scripts/scope.lua",
}

# Pages that still have long lines.
LONG_LINES_NOT_YET = {
    "docs/adr/0018-leases-in-redis-by-scripts.md",
    "docs/architecture.md",
    "docs/how-to/run-on-rocketmq.md",
    "docs/how-to/run-the-pipelines.md",
    "docs/how-to/use-postgresql.md",
    "docs/how-to/use-redis.md",
    "docs/how-to/use-spark.md",
    "docs/reference/api.md",
    "docs/reference/events.md",
    "docs/reference/rocketmq.md",
    "docs/reference/spark.md",
}


def _sections() -> tuple[str, str]:
    terms, _, retired = GLOSSARY.read_text("utf-8").partition("\n## Retired words\n")
    return terms, retired


def _retired_words() -> list[str]:
    return [word for word, _ in _ROW.findall(_sections()[1]) if word not in ("Word", "---")]


def _texts() -> dict[str, str]:
    """Return the text of every file that has to follow the glossary, by its path."""
    files = [path for suffix in ("py", "lua", "sql") for path in (ROOT / "src").rglob(f"*.{suffix}")]
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in [*files, *_pages()]}
    return texts | {"docs/glossary.md": _sections()[0]}


def _pages() -> list[Path]:
    return [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]


def _has_long_line(page: Path) -> bool:
    lines = without_blocks(page).splitlines()
    return any(len(line) > MAX_COLUMNS and not line.startswith("|") and not _LINK_LINE.match(line) for line in lines)


def test_retired_words_appear_only_in_files_that_are_listed() -> None:
    """A retired word in a new file confuses readers; a listed file without one would let the word return."""
    retired = re.compile(rf"\b({'|'.join(_retired_words())})\b", re.IGNORECASE)

    found = {path for path, text in _texts().items() if retired.search(text)}

    assert found == RETIRED_NOT_YET


def test_prose_has_at_most_120_columns() -> None:
    """Long lines hide changes in a diff. A listed page without one has to leave the list."""
    found = {str(page.relative_to(ROOT)) for page in _pages() if _has_long_line(page)}

    assert found == LONG_LINES_NOT_YET


def test_every_code_name_of_the_glossary_exists() -> None:
    """A name that was renamed in the code but not in the glossary leads a search nowhere."""
    rows = [line.split(" | ") for line in _sections()[0].splitlines() if line.startswith("| **")]
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row[2])}
    source = "\n".join(text for path, text in _texts().items() if path.startswith("src/"))
    words = set(re.findall(r"\w+", source))

    assert names
    assert names - words == set()


def test_terms_are_sorted() -> None:
    """Readers look up a term by its first letter."""
    terms = re.findall(r"^\| \*\*(.+?)\*\*", _sections()[0], re.MULTILINE)

    assert terms == sorted(terms)


@pytest.mark.parametrize("listed", [RETIRED_NOT_YET, LONG_LINES_NOT_YET], ids=["retired words", "long lines"])
def test_listed_files_exist(listed: set[str]) -> None:
    """A path that was moved would otherwise stay in the list."""
    assert {path for path in listed if not (ROOT / path).is_file()} == set()
