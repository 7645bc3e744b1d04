"""A model card for the page: its Markdown as blocks of text, so that nothing in it can become markup."""

from __future__ import annotations

import re
from typing import Any

#: (kind, words): kind is text, strong or code.
Parts = list[list[str]]
_MARKS = re.compile(r"\*\*(?P<strong>.+?)\*\*|`(?P<code>.+?)`")


def card_blocks(markdown: str) -> list[dict[str, Any]]:
    """Headings, lists, tables and paragraphs in order; the card's own title is left out, as the page has one."""
    first, _, rest = markdown.strip().partition("\n")
    text = rest if first.startswith("# ") else markdown
    blocks: list[dict[str, Any]] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        blocks += _block(block.splitlines())
    return blocks


def _block(lines: list[str]) -> list[dict[str, Any]]:
    if not lines:
        return []
    first = lines[0].strip()
    heading = re.match(r"(#{1,6})\s+(.*)", first)
    if heading:
        return [{"kind": f"h{min(len(heading[1]) + 2, 6)}", "parts": _parts(heading[2])}, *_block(lines[1:])]
    if first.startswith(("- ", "* ")):
        return [{"kind": "ul", "items": [_parts(item) for item in _items(lines)]}]
    if first.startswith("|"):
        return [_table(lines)]
    return [{"kind": "p", "parts": _parts(" ".join(line.strip() for line in lines))}]


def _items(lines: list[str]) -> list[str]:
    """List items; a line that begins no item carries the one before on."""
    items: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith(("- ", "* ")):
            items.append(text[2:])
        elif items:
            items[-1] += " " + text
    return items


def _table(lines: list[str]) -> dict[str, Any]:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head, *body = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    return {"kind": "table", "head": [_parts(c) for c in head], "rows": [[_parts(c) for c in row] for row in body]}


def _parts(text: str) -> Parts:
    parts: Parts = []
    at = 0
    for mark in _MARKS.finditer(text):
        parts.append(["text", text[at : mark.start()]])
        kind = "strong" if mark["strong"] else "code"
        parts.append([kind, mark[kind]])
        at = mark.end()
    return [part for part in [*parts, ["text", text[at:]]] if part[1]]
