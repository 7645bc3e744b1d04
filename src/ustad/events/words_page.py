"""What a reason can say, written where people and the page read it: docs/why-flagged.md and the page's kinds.

python -m ustad.events.words_page        in the repository, after a sentence or a word for a kind was changed
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ustad.events.templates import TEMPLATES, Template
from ustad.kind_words import KIND_WORDS

PAGE, SCRIPT = Path("docs/why-flagged.md"), Path("src/ustad/page/web/kinds.js")
_BLOCK = re.compile(r"(<!-- Written by `python -m ustad.events.words_page` -->\n).*?(<!-- end -->)", re.DOTALL)


def write_sentences() -> str:
    """All sentences as a table in Markdown, each with an example."""
    lines = ["| part | example | said where |", "|---|---|---|"]
    for group, templates in TEMPLATES.items():
        lines += [f"| {group} | *{fill(template)}* | {template.when} |" for template in templates.values()]
    return "\n".join(lines)


def fill(template: Template) -> str:
    """A sentence with the values of its example."""
    text = template.text.format(**template.example)
    return text[:1].upper() + text[1:]


def write_kinds() -> str:
    """The words for kinds as a table in Markdown: words, stored kind, questions that lead, meaning."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name, (words, meaning) in KIND_WORDS.items():
        kind, _, question = name.partition("/")
        rows.setdefault((words, kind, meaning), []).append(f"`{question}`" if question else "")
    lines = ["| words | stored as | where this question leads | meaning |", "|---|---|---|---|"]
    for (words, kind, meaning), questions in rows.items():
        lines.append(f"| *{words}* | `{kind}` | {', '.join(questions)} | {meaning} |")
    return "\n".join(lines)


def write_script() -> str:
    """The same words as a module of the page."""
    entries = [f"  {json.dumps(name)}: {json.dumps(words)}," for name, words in KIND_WORDS.items()]
    return "\n".join([
        "// Words for the stored kinds and their meaning. Written by `python -m ustad.events.words_page`; do not edit.",
        "export const KINDS = {", *entries, "};", "",
    ])  # fmt: skip


def write_page(page: str) -> str:
    """The page with both tables between their marks."""
    tables = iter((write_kinds(), write_sentences()))
    return _BLOCK.sub(lambda block: f"{block[1]}{next(tables)}\n{block[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text()))
    SCRIPT.write_text(write_script())
