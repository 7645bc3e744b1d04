"""A short run of the fuzzer: what it makes of every kind of file is read, or refused in one line.

The long run is `python -m tests.fuzz --cases 1000000`.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed: pip install 'ustad[service]'")
for folder in ("service", "mobility"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

import fuzz_engine  # noqa: E402  # after the folders that it takes from
from fuzz_targets import CORPUS, REFUSED, TARGETS  # noqa: E402

FILES = sorted(p for p in CORPUS.rglob("*") if p.is_file())
ONCE = sorted((Path(__file__).parent / "cases").iterdir())  # inputs that were findings
CASES = 20 * int(os.environ.get("USTAD_MORE", "1"))  # of each target


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    TARGETS["http"].run.close()  # type: ignore[attr-defined]  # the one target that holds something open


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(TARGETS))
def test_what_chance_made_of_a_file_is_read_or_refused_in_one_line(name: str) -> None:
    figures = fuzz_engine.fuzz([name], CASES, seed=3)
    assert figures.cases[name] == CASES
    assert [finding.what for finding in figures.findings.values()] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path", sorted(p for p in CORPUS.rglob("*") if p.is_file()), ids=lambda p: p.parent.name + "-" + p.name
)
def test_the_corpus_itself_is_read(path: Path, tmp_path: Path) -> None:
    """Else what is made from it says nothing of the readers; YAML that refers to itself a thousandfold is refused."""
    target = TARGETS[path.parent.name]
    copy = tmp_path / path.parent.name / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    if path.name == "laughs.yaml":
        with pytest.raises(REFUSED) as refused:
            target.run(copy)
        assert len(str(refused.value)) < 1000
    else:
        target.run(copy)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ONCE, ids=lambda case: case.name)
def test_what_was_a_fault_once_is_read_or_refused(case: Path, tmp_path: Path) -> None:
    target, name = fuzz_engine.split_name(case.name)
    copy = tmp_path / target / name
    copy.parent.mkdir()
    copy.write_bytes(case.read_bytes())
    assert fuzz_engine.run_case(TARGETS[target], copy)[1] is None


def test_the_same_seed_makes_the_same_cases() -> None:
    content, others = (CORPUS / "fixes" / "fixes.csv").read_bytes(), [b"abc"]
    made = [[fuzz_engine.mutate(content, others, random.Random(7)) for _ in range(3)] for _ in range(2)]
    assert made[0] == made[1]
    assert made[0][0] != content


def test_a_fault_is_found_and_described(tmp_path: Path) -> None:
    """The fuzzer's own eyes: an error that is no refusal, and a case that does not end."""

    def fail(path: Path) -> None:
        raise KeyError("a column")

    def hang(path: Path) -> None:
        while True:
            pass

    assert "KeyError" in str(fuzz_engine.run_case(fuzz_engine.Target("x", fail), tmp_path)[1])
    assert "longer than" in str(fuzz_engine.run_case(fuzz_engine.Target("x", hang), tmp_path, seconds=0.05)[1])
