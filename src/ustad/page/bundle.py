"""The page's scripts as one script for one file: each module in a function of its own, in the order of its imports.

Modules import each other by name only (`import { a } from "./x.js"`, `import * as x from "./x.js"`), without a circle.
"""

from __future__ import annotations

import re

from ustad.page import WEB

ENTRY = "main.js"
_IMPORT = re.compile(
    r'^import (?:\* as (?P<whole>\w+)|\{(?P<names>[^}]*)\}) from "\./(?P<file>[\w.]+)";$', re.MULTILINE
)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.M)


def bundle(entry: str = ENTRY) -> str:
    """A module and all that it needs, itself last; by default the one that starts the page."""
    return '"use strict";\n' + "\n".join(_module(name) for name in module_order(entry))


def module_order(entry: str = ENTRY) -> list[str]:
    """Files of the modules, each after those that it imports."""
    order: list[str] = []
    _visit(entry, order, [])
    return order


def _visit(name: str, order: list[str], above: list[str]) -> None:
    if name in above:
        raise ValueError(f"scripts import each other in a circle: {' → '.join([*above, name])}")
    for match in _IMPORT.finditer(read_web(name)):
        if match["file"] not in order:
            _visit(match["file"], order, [*above, name])
    order.append(name)


def read_web(name: str) -> str:
    """A file of the page."""
    return (WEB / name).read_text(encoding="utf-8")


def _module(name: str) -> str:
    text = read_web(name)
    names = ", ".join(_EXPORT.findall(text))
    text = _EXPORT.sub("", _IMPORT.sub(_binding, text))
    if re.search(r"^(import|export)\b", text, re.M):
        raise ValueError(f"{name}: an import or export that cannot be put into one file")
    return f"const {_variable(name)} = (() => {{\n{text}\nreturn {{ {names} }};\n}})();"


def _binding(match: re.Match[str]) -> str:
    module = _variable(match["file"])
    if match["whole"]:
        return f"const {match['whole']} = {module};"
    return f"const {{ {match['names'].replace(' as ', ': ').strip()} }} = {module};"


def _variable(name: str) -> str:
    return f"{name.removesuffix('.js')}_module"
