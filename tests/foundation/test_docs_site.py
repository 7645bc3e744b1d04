"""The pages for people: each is in the menu and short enough, links lead somewhere, the page of verbs is today's.

Read without the generator itself, which `make docs` alone needs.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import ustad

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted(DOCS.rglob("*.md"))
MOST_WORDS, MOST_IN_SENTENCE = 1500, 25
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
#: What a browser would load, in contrast to what it leads to when somebody clicks on it.
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*https?://|!\[[^\]]*\]\(https?://|@import")


def find_pages(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from find_pages(value) if isinstance(value, list) else [value]


def read_for_people() -> list[str]:
    """Pages that answer one question each: all but the reference and the evidence, which have folders of their own."""
    return [page.name for page in PAGES if page.parent == DOCS]


def name_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown and GitHub both write them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower()) for title in titles}


def read_sentences(page: Path) -> Iterator[str]:
    """The sentences of a page, or their parts between colons and semicolons; tables, headings and code are left out."""
    text = re.sub(r"```.*?```|<!--.*?-->|^[|#].*?$", "\n", page.read_text(), flags=re.DOTALL | re.M)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*>]|\d+\.) )", text):
        yield from re.split(r"(?<=[.!?:;])[\"”*)]*\s+", block)


def test_the_menu_names_every_page_once_and_no_other() -> None:
    assert sorted(find_pages(SITE["nav"])) == [str(page.relative_to(DOCS)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_between_pages_lead_to_a_page_or_picture_and_to_a_heading_of_it(page: Path) -> None:
    for link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), link
        assert target.is_relative_to(DOCS), f"{link}: not part of the pages that are built"
        if anchor:
            assert anchor in name_anchors(target), link


@pytest.mark.parametrize("name", read_for_people())
def test_a_page_for_people_is_read_in_a_few_minutes(name: str) -> None:
    assert len((DOCS / name).read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("name", read_for_people())
def test_a_page_for_people_asks_a_question_and_has_a_picture(name: str) -> None:
    page = (DOCS / name).read_text()
    assert PICTURE.search(page) is not None
    assert name == "index.md" or page.splitlines()[0].endswith("?")


@pytest.mark.parametrize("name", [*read_for_people(), "../README.md", "../CONTRIBUTING.md"])
def test_a_sentence_of_a_page_for_people_can_be_read_once(name: str) -> None:
    lengths = {sentence: len(re.findall(r"\w[\w'’.,/-]*", sentence)) for sentence in read_sentences(DOCS / name)}
    assert {sentence: length for sentence, length in lengths.items() if length > MOST_IN_SENTENCE} == {}


@pytest.mark.parametrize("picture", sorted(DOCS.rglob("figures/**/*.*")), ids=lambda path: path.name)
def test_every_picture_is_shown_on_a_page(picture: Path) -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in PICTURE.findall(page.read_text())}
    assert picture in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_loads_nothing_from_elsewhere(page: Path) -> None:
    assert LOADED.search(page.read_text()) is None


def test_the_site_has_a_search_and_no_fonts_or_scripts_of_others() -> None:
    assert "search" in SITE["plugins"]
    assert SITE["theme"]["font"] is False
    assert not [value for name, value in SITE.items() if name in ("extra_javascript", "extra_css")]


def test_the_page_of_verbs_is_what_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("verbs_page")
    assert script.PAGE.read_text() == script.write_page(), "write it anew: python benchmarks/verbs_page.py"


@pytest.mark.parametrize("name", read_for_people())
def test_a_measured_figure_of_a_page_for_people_stands_in_evidence_that_it_links_to(name: str) -> None:
    """Pairs (0.848 / 0.292, in one cell there), other areas, and percentages (1.12 %); 0.001 is a p-value."""
    page = (DOCS / name).read_text()
    evidence = "".join((DOCS / link).read_text() for link in set(re.findall(r"\]\((evidence/[\w-]+\.md)", page)))
    pairs = re.findall(r"\b(0\.\d{3}) / (0\.\d{3})\b", page)
    assert [
        pair for pair in pairs if not re.search(r"{} ± [\d.]+ / {} ±".format(*map(re.escape, pair)), evidence)
    ] == []
    typed = set(re.findall(r"\b(?:0\.\d{3}|\d\.\d\d(?= %))(?!\d)", page)) - {"0.001"}
    assert {figure for figure in typed if figure not in evidence} == set()


def test_the_page_of_python_names_what_the_package_offers() -> None:
    table = (DOCS / "reference" / "python.md").read_text().split("## ")[0]
    named = set(re.findall(r"`(\w+)[^`]*`", "\n".join(re.findall(r"^\| (.*?) \|", table, re.M))))
    assert named == set(ustad.__all__) - {"__version__"}
