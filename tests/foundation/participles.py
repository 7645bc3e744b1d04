"""Names that are a bare participle (`found`, `told`, `held`): they say that something was done, not what it is.

python tests/foundation/participles.py        how many each room has, and which
python tests/foundation/participles.py ROOM   where they are
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ustad"
#: Participles that do not end in -ed.
IRREGULAR = {
    "begun", "bought", "brought", "built", "caught", "chosen", "dealt", "done", "drawn", "driven", "fallen", "felt",
    "found", "given", "gone", "got", "grown", "heard", "held", "kept", "known", "laid", "learnt", "lost", "made",
    "meant", "met", "paid", "said", "seen", "sent", "shown", "shut", "sold", "spent", "spoken", "stood", "taken",
    "taught", "thought", "thrown", "told", "understood", "won", "worn", "written",
}  # fmt: skip
#: Words that end in -ed and are no participles, or are terms of the field: a masked event, what was observed.
NOUNS = {"seed", "speed", "need", "feed", "embed", "shed", "exceed", "masked", "observed", "expected"}


def is_participle(name: str) -> bool:
    word = name.strip("_").lower()
    return word not in NOUNS and (word in IRREGULAR or (word.endswith("ed") and word.isalpha()))


def bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that a module binds, with its line: functions, classes, arguments, variables."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def rooms() -> dict[str, list[Path]]:
    """Files by room; single modules are the ground."""
    found: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        found.setdefault(parts[0] if len(parts) > 1 else "ground", []).append(path)
    return found


def participles(paths: list[Path]) -> tuple[list[tuple[Path, int, str]], int]:
    """Where names are bare participles, and how many names there are."""
    names = [(path, line, name) for path in paths for name, line in bindings(ast.parse(path.read_text()))]
    return [one for one in names if is_participle(one[2])], len(names)


def main() -> None:
    wanted = sys.argv[1:]
    for room, paths in rooms().items():
        places, total = participles(paths)
        if room in wanted:
            for path, line, name in places:
                print(f"{path.relative_to(SOURCE)}:{line}: {name}")
        words = ", ".join(f"{w} {n}" for w, n in Counter(name for _, _, name in places).most_common(12))
        print(f"{room}: {len(places)} of {total} ({len(places) / total:.1%}): {words}")


if __name__ == "__main__":
    main()
