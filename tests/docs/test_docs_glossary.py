"""The glossary is the vocabulary of the project: its code names exist, and its retired words are not used."""

import re
from pathlib import Path

from doc_pages import ROOT, without_blocks

GLOSSARY = ROOT / "docs" / "glossary.md"
MAX_COLUMNS = 120
_ROW = re.compile(r"^\| (.+?) \| (.+?) \|", re.MULTILINE)
_LINK_LINE = re.compile(r"[-*\d. ]*\[[^\]]*\]\([^)]*\)[.,;]?$")

# A field of the lease state on Redis. Gateways of the previous release use it too, so it keeps its name.
_STORED_NAME = re.compile(r"(['`])calm\1")


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


def test_retired_words_are_not_used() -> None:
    """Two words for one thing confuse readers."""
    retired = re.compile(rf"\b({'|'.join(_retired_words())})\b", re.IGNORECASE)

    found = {path for path, text in _texts().items() if retired.search(_STORED_NAME.sub("", text))}

    assert found == set()


def test_every_file_that_the_architecture_names_exists() -> None:
    """A reader follows a message by these names."""
    files = {str(path.relative_to(ROOT / "src/mqgate")) for path in (ROOT / "src/mqgate").rglob("*.*")}
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    named = set(re.findall(r"(?<![\w/.*])[\w/]+\.(?:py|lua|sql)\b", text))

    assert named
    assert {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)} == set()


def test_every_code_name_of_the_architecture_exists() -> None:
    """A renamed class or method leads a search nowhere."""
    source = "\n".join(text for path, text in _texts().items() if path.startswith("src/"))
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    names = {part for name in re.findall(r"`([A-Z]\w+(?:\.\w+)?)`", text) for part in name.split(".")}

    assert names
    assert names - set(re.findall(r"\w+", source)) == set()


def test_prose_has_at_most_120_columns() -> None:
    """Long lines hide changes in a diff."""
    found = {str(page.relative_to(ROOT)) for page in _pages() if _has_long_line(page)}

    assert found == set()


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
