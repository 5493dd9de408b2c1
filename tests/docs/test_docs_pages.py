"""Links of the pages lead somewhere, and what the pages show would be accepted."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, blocks, without_blocks

from mqgate.control.registry.model import GroupSpec
from mqgate.settings import Settings

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as sites that show Markdown create them."""
    headings = _HEADING.findall(without_blocks(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """A reader with an incident must not follow a dead link."""
    broken = []
    for link in _LINK.findall(without_blocks(page)):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        found = (page.parent / target).resolve() if target else page
        if not found.exists() or (anchor and anchor not in _anchors(found)):
            broken.append(link)

    assert not broken


def test_every_page_can_be_reached_from_the_readme() -> None:
    """Readers cannot find a page without a link."""
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = [link.partition("#")[0] for link in _LINK.findall(without_blocks(page))]
        waiting += [(page.parent / target).resolve() for target in targets if target and "://" not in target]

    assert set(PAGES) - seen == set()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=_name)
def test_settings_that_a_page_shows_are_accepted(page: Path, tmp_path: Path) -> None:
    """Operators paste them into mqgate.toml."""
    for number, text in enumerate(blocks(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text, "utf-8")

        settings = Settings.load(file, environment={})

        assert len(settings.topic) == len(tomllib.loads(text).get("topic", []))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "json")], ids=_name)
def test_json_that_a_page_shows_is_json(page: Path) -> None:
    """Readers paste it."""
    for text in blocks(page, "json"):
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=_name)
def test_a_decision_has_all_five_sections(page: Path) -> None:
    """A reader who wants to change it needs all of them, on one page."""
    text = page.read_text("utf-8")

    assert re.match(r"# [1-9]\d*\. ", text)
    assert int(text[2:].partition(".")[0]) == int(page.name[:4])
    assert re.search(r"^Status: (proposed|accepted|superseded by .*)$", text, re.MULTILINE)
    assert _HEADING.findall(text)[1:] == ["Context", "Decision", "Consequences", "Alternatives"]
    assert len(text.splitlines()) <= 60


def test_groups_in_the_pages_have_only_known_members() -> None:
    """The check is that of the gateway."""
    shown = [json.loads(text) for page in PAGES for text in blocks(page, "json")]
    known = set(GroupSpec.__struct_encode_fields__)

    groups = [entry for entry in shown if "topic" in entry]

    assert groups
    assert all(set(group) <= known for group in groups)
