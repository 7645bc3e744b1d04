"""XML read safely: element by element, without document types and therefore without entities that expand.

In: bytes. Out: calls with the names of the open elements and the text of the one that ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers import expat

from ustad.tables import DataError

DEEPEST = 64  # elements inside each other; the formats read here have a dozen
Close = Callable[[list[str], str], None]


def walk_xml(content: bytes, path: Path, close: Close) -> None:
    """Call `close(names, text)` at the end of each element; `names` are those open, outermost first, without
    namespaces. What is no XML, or declares a document type, is a DataError."""
    parser, names, texts = expat.ParserCreate(), list[str](), list[list[str]]()
    parser.buffer_text = True

    def start(name: str, attributes: Any) -> None:
        if len(names) >= DEEPEST:
            raise DataError(f"{path}: XML elements lie deeper than {DEEPEST}; the file is not what it seems")
        names.append(name.rpartition(":")[2])
        texts.append([])

    def end(name: str) -> None:
        close(names, "".join(texts.pop()).strip())
        names.pop()

    def characters(text: str) -> None:
        if texts:
            texts[-1].append(text)

    def refuse(*declaration: Any) -> None:
        raise DataError(f"{path}: declares a document type (DOCTYPE), which is not read; remove that line")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content.strip(), True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not valid XML ({error}); it may be cut off, export it again") from error
