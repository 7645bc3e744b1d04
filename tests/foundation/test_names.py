"""Names that a newcomer can find: one file of a name, and files of a size that can be read."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from participles import participles, rooms

import ustad

SOURCE = Path(ustad.__file__).parent


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_no_two_files_have_one_name():
    files = [*modules(), *SOURCE.rglob("*.yaml")]
    count = Counter(path.name for path in files if path.name != "__init__.py")
    assert [name for name, times in count.items() if times > 1] == []


def test_files_are_short_enough_to_have_one_job():
    lines = {path.name: len(path.read_text().splitlines()) for path in modules()}
    assert {name: n for name, n in lines.items() if n > 400} == {}


#: Of the names that a room binds, how many per cent may be bare participles. Lower it with every room that is tidied.
MOST_PARTICIPLES = {
    "cli": 0.0, "config": 0.0, "events": 0.0, "ground": 0.3, "lab": 0.0, "simulate": 0.0,
    "mobility": 0.2, "service": 0.4, "network": 0.1, "habits": 0.0, "live": 0.0, "scoring": 0.0, "page": 0.1,
    "engine": 0.0, "own_values": 0.0, "triage": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("room", MOST_PARTICIPLES)
def test_names_say_what_a_thing_is_and_not_that_something_was_done(room):
    places, total = participles(rooms()[room])
    words = Counter(name for _, _, name in places).most_common(5)
    assert 100 * len(places) / total <= MOST_PARTICIPLES[room], (
        f"python tests/foundation/participles.py {room}: {words}"
    )


def test_every_room_has_a_bound_of_participles():
    assert set(rooms()) == set(MOST_PARTICIPLES)


#: Functions of a room that take more than four arguments by position. Lower it with every room that is tidied.
MOST_LONG_CALLS = {
    "cli": 0, "config": 0, "engine": 0, "events": 0, "ground": 0, "habits": 0, "lab": 0, "live": 0, "mobility": 0,
    "network": 5, "own_values": 0, "page": 0, "scoring": 1, "service": 0, "simulate": 0, "triage": 0,
}  # fmt: skip


def _compilers(tree: ast.Module) -> set[str]:
    """Names that a module gives to a compiler of kernels: `_compile = numba.njit(...)`, `def _kernel(...)`."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and "jit(" in ast.unparse(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.FunctionDef) and "triton.jit(" in ast.unparse(node):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.name.startswith("compile_")}
    return names


def _is_compiled(node: ast.FunctionDef | ast.AsyncFunctionDef, compilers: set[str]) -> bool:
    """Kernels of numba and triton, which take no argument by keyword alone."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any("jit" in decorator or decorator in compilers for decorator in decorators)


def _long_calls(paths: list[Path]) -> Iterator[str]:
    """Functions with more than four positional arguments beside `self`, without compiled kernels."""
    for path in paths:
        tree = ast.parse(path.read_text())
        compilers = _compilers(tree)
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_compiled(node, compilers):
                continue
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            if len(names) - (names[:1] in (["self"], ["cls"])) > 4:
                yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"


@pytest.mark.parametrize("room", MOST_LONG_CALLS)
def test_arguments_past_the_fourth_are_named_in_a_call(room):
    places = list(_long_calls(rooms()[room]))
    assert len(places) <= MOST_LONG_CALLS[room], places


def test_every_room_has_a_bound_of_long_calls():
    assert set(rooms()) == set(MOST_LONG_CALLS)
