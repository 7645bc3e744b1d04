"""Markdown of a model card as HTML: headings, lists, tables, paragraphs, emphasis. Everything else stays text."""

from __future__ import annotations

import html
import re


def to_html(markdown: str) -> str:
    """HTML in which nothing of the text can be markup of its own."""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", markdown.strip()):
        blocks += _block(block.splitlines())
    return "\n".join(blocks)


def _block(lines: list[str]) -> list[str]:
    if not lines:
        return []
    first = lines[0].strip()
    heading = re.match(r"(#{1,6})\s+(.*)", first)
    if heading:
        level = min(len(heading[1]) + 2, 6)
        return [f"<h{level}>{_inline(heading[2])}</h{level}>", *_block(lines[1:])]
    if first.startswith(("- ", "* ")):
        return [f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in _items(lines))}</ul>"]
    if first.startswith("|"):
        return [_table(lines)]
    return [f"<p>{_inline(' '.join(line.strip() for line in lines))}</p>"]


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


def _table(lines: list[str]) -> str:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    body = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    head, *rest = body
    cells = "".join(f"<th>{_inline(cell)}</th>" for cell in head)
    more = "".join("<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in rest)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{more}</tbody></table>"


def _inline(text: str) -> str:
    safe = html.escape(text)
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", safe)
