"""The direction of imports, and what a bare GPU machine can import."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ustad

SOURCE = Path(ustad.__file__).parent
#: Rooms from the ground up: a room may import from itself and from rows above it.
TIERS = [
    {"tables", "files", "geo", "clock", "schema", "config", "progress", "dataset", "scores", "schema_infer", "ties"}
    | {
        "calendar_days",
        "distribution",
        "frames",
        "agent_order",
        "kind_words",
        "notebook",
        "torch_device",
        "turns",
        "data_error",
    },
    {"mobility", "simulate", "events"},
    {"lessons"},
    {"evidence_source"},
    {"habits"},
    {"network", "own_values"},
    {"scoring"},
    {"triage"},
    {"artefact", "card", "carrying_on", "periods", "trip_features", "model_files", "detector", "pyod_style"}
    | {"versions", "renewal", "judges", "paper_fitting"},
    {"live", "engine"},
    {"page", "lab"},
    {"service"},
    {"cli"},
]
#: The few imports between rooms of one tier that are meant.
BESIDE = {
    ("detector", "artefact"),
    ("detector", "carrying_on"),
    ("detector", "judges"),
    ("judges", "artefact"),
    ("judges", "paper_fitting"),
    ("detector", "model_files"),
    ("detector", "periods"),
    ("detector", "trip_features"),
    ("model_files", "artefact"),
    ("model_files", "card"),
    ("model_files", "trip_features"),
    ("detector", "versions"),
    ("pyod_style", "detector"),
    ("renewal", "detector"),
    ("renewal", "periods"),
    ("renewal", "versions"),
    ("versions", "artefact"),
    ("simulate", "mobility"),
}
#: What may be imported at the top of a module anywhere but in page, service, engine and cli.
BARE = ["numpy", "scipy", "numba", "pyarrow", "sklearn", "torch", "safetensors", "yaml", "typer", "rich"]
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "PyYAML"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


@cache  # hundreds of files, which many tests here ask about
def imported_rooms(path: Path) -> set[str]:
    """Rooms of ustad that a module imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name, not relatively"
            names = [node.module or ""]
            if node.module == "ustad":
                names = [f"ustad.{a.name}" for a in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("ustad.")}
    return found


def tier(name: str) -> int:
    return next((i for i, names in enumerate(TIERS) if name in names), -1)


def test_every_room_has_a_tier():
    known = set().union(*TIERS) | {"__init__", "__main__"}
    assert {room(p) for p in modules()} <= known


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    here = room(path)
    if here in ("__init__", "__main__"):
        return
    for other in imported_rooms(path) - {here, "__init__"}:
        lower = tier(other) < tier(here)
        foundation = tier(here) == 0 and tier(other) == 0
        assert lower or foundation or (here, other) in BESIDE, f"{here} must not import {other}"


@pytest.mark.parametrize("name", ["events", "habits", "network", "own_values", "scoring"])
def test_the_core_knows_nothing_of_mobility(name):
    for path in (SOURCE / name).rglob("*.py"):
        assert not imported_rooms(path) & {"mobility", "simulate"}, path


def top_imports(path: Path) -> set[str]:
    """What a module imports when it is imported itself, by full name."""
    nodes = [n for n in ast.parse(path.read_text()).body if isinstance(n, (ast.Import, ast.ImportFrom))]
    return {f"{n.module}" if isinstance(n, ast.ImportFrom) else a.name for n in nodes for a in n.names}


def test_only_the_lab_and_its_verbs_know_the_lab_and_verbs_import_it_when_they_run():
    for path in modules():
        parts = path.relative_to(SOURCE).parts
        if parts[0] != "lab":
            assert "lab" not in imported_rooms(path) or parts[:2] == ("cli", "lab"), path
            assert not any(name.startswith("ustad.lab") for name in top_imports(path)), path


BLOCKER = """
import importlib, importlib.metadata as metadata, re, sys
allowed = set(sys.stdlib_module_names) | {"ustad", "_distutils_hack", "distutils"}
todo, seen = list(%r), set()
plain = lambda name: re.sub("[-_.]+", "-", name).lower()
while todo:
    name = re.split(r"[ ;<>=!~\\[(]", todo.pop())[0]
    if not name or plain(name) in seen:
        continue
    seen.add(plain(name))
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    todo += [r for r in distribution.requires or [] if "extra ==" not in r]
tops = metadata.packages_distributions()
allowed |= {top for top, names in tops.items() if any(plain(n) in seen for n in names)}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in allowed or top not in tops:
            return None
        raise ModuleNotFoundError(f"{top} is not on a bare machine", name=top)

sys.meta_path.insert(0, Refuse())
for module in %r:
    importlib.import_module(module)
print("ok", "polars" not in sys.modules)
"""


def test_everything_but_page_service_engine_imports_on_a_bare_machine():
    names = [
        ".".join(("ustad", *p.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for p in modules()
        if room(p) not in ("page", "service", "engine") and p.name != "__main__.py"
    ]
    code = BLOCKER % ([DISTRIBUTIONS.get(n, n) for n in BARE], names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "ok True"


def test_help_starts_without_numpy_arrow_and_torch() -> None:
    script = "import sys, ustad.cli; print(sorted({'numpy', 'pyarrow', 'torch', 'numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------------ doors
ROOMS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())


def read_door(name: str) -> tuple[str, ...]:
    """`DOOR` of a room: the modules that others may import."""
    for node in ast.parse((SOURCE / name / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOOR":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{name} has no door")


def is_module(name: str, module: str) -> bool:
    """Else it is something that the room's `__init__` gives to everybody."""
    path = (SOURCE / name).joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def imported_modules(path: Path) -> set[tuple[str, str]]:
    """Room and module of everything that a module imports from other rooms, also inside functions."""
    pairs = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ustad."):
            name, *rest = node.module.split(".")[1:]
            pairs |= {(name, ".".join(rest) or alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".")[1:] for alias in node.names if alias.name.startswith("ustad.")]
            pairs |= {(first, ".".join(rest)) for first, *rest in names}
    return {pair for pair in pairs if pair[0] != room(path) and pair[0] in ROOMS and is_module(*pair)}


@cache
def entered_modules() -> dict[str, set[str]]:
    """Of each room the modules that others import."""
    imports = {pair for path in modules() for pair in imported_modules(path)}
    return {name: {module for here, module in imports if here == name} for name in ROOMS}


@pytest.mark.parametrize("name", ROOMS)
def test_every_room_is_entered_through_its_door_alone(name):
    door = read_door(name)
    assert list(door) == sorted(set(door))
    past = entered_modules()[name] - set(door)
    assert not past, f"{name}: {past} are imported past the door; use what DOOR names, or put it there"


@pytest.mark.parametrize("name", ROOMS)
def test_no_door_is_wider_than_needed(name):
    assert set(read_door(name)) <= entered_modules()[name]


@pytest.mark.parametrize(
    ("line", "entered"),
    [
        ("from ustad.habits.kernels import presence", {("habits", "kernels")}),
        ("from ustad.page import queries, WEB", {("page", "queries")}),  # the other is what the room itself gives
        ("import ustad.network.inference.sampling", {("network", "inference.sampling")}),
        ("def f():\n    from ustad.lab.red_team import inject", {("lab", "red_team")}),
        ("from ustad.tables import DataError", set()),
        ("from ustad.cli.shared import out", set()),
    ],
)
def test_what_is_imported_from_a_room_is_seen(tmp_path, monkeypatch, line, entered):
    monkeypatch.setattr(sys.modules[__name__], "room", lambda path: "cli")
    file = tmp_path / "verb.py"
    file.write_text(line)
    assert imported_modules(file) == entered


def test_scoring_knows_nothing_of_its_sources():
    for path in (SOURCE / "scoring").rglob("*.py"):
        assert not imported_rooms(path) & {"habits", "network", "own_values"}, path


#: The one place that knows which judge a configuration has. Live scoring maps judges to scorers without asking.
ASK_WHICH_JUDGE = {"judges.py"}
JUDGES = {"AddingJudge", "PaperJudge", "HabitSource", "MemoryModel", "PaperNetwork"}


def asks_which_judge(node: ast.AST) -> bool:
    """`isinstance(judge, …)` of a judge or a source, and the function that reads it from the settings."""
    if isinstance(node, ast.Name) and node.id == "is_by_paper":
        return True
    is_question = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
    return is_question and any(isinstance(n, ast.Name) and n.id in JUDGES for n in ast.walk(node))


def test_nobody_else_asks_which_judge_scores():
    asking = {
        str(path.relative_to(SOURCE))
        for path in modules()
        if any(asks_which_judge(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert asking == ASK_WHICH_JUDGE


#: Rooms that see evidence alone; names that tell whose it is, and questions and columns that one source alone has.
SEE_EVIDENCE = ("page", "service", "engine", "live", "triage", "cli")
WHOSE = re.compile(r"HABIT|(by|of|is)_(habits|network|paper|memory)$")
SOURCES = {"habits", "network", "memory", "dual", "own_values"}
OF_ONE_SOURCE = {"recurrence", "elsewhere", "visits_now", "km_from_own_places", "new_place"}


def find_conditions(tree: ast.AST) -> Iterator[ast.AST]:
    """What is asked: conditions, comparisons, filters, and what `and` and `or` join."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, (ast.Compare, ast.BoolOp)):
            yield node


def asks_which_source(condition: ast.AST) -> bool:
    """By a name that tells the source, by the word for it, or by comparing with what one source alone has."""
    for node in ast.walk(condition):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if WHOSE.search(name) or (isinstance(node, ast.Constant) and node.value in SOURCES):
            return True
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += [one for side in sides for one in getattr(side, "elts", ())]
        if any(isinstance(side, ast.Constant) and side.value in OF_ONE_SOURCE for side in sides):
            return True
    return False


def test_rooms_that_see_evidence_do_not_ask_whose_it_is():
    asking = {
        (str(path.relative_to(SOURCE)), ast.unparse(condition))
        for path in modules()
        if room(path) in SEE_EVIDENCE or path.stem in ("detector", "card", "notebook", "scores")
        for condition in find_conditions(ast.parse(path.read_text()))
        if asks_which_source(condition)
    }
    assert asking == set()


def test_scripts_of_the_page_do_not_ask_whose_evidence_is():
    scripts = sorted((SOURCE / "page" / "web").glob("*.js"))
    assert len(scripts) > 10
    for script in scripts:
        assert not re.search(r"\.(habits|network|memory|own_values)\b", script.read_text()), script.name


@pytest.mark.parametrize(
    "line",
    [
        "if by_habits: pass",
        "x = [n for n in names if n in HABITS]",
        "x = a if content.get('habits') else b",
        "x = any(one['name'] in _ASKED_OF_HABITS for one in evidence)",
        "x = config.model.network == 'memory'",
        "if 'new_place' in value: pass",
        "x = name in ('start', 'recurrence')",
    ],
)
def test_such_questions_are_noticed(line):
    assert any(asks_which_source(condition) for condition in find_conditions(ast.parse(line)))
