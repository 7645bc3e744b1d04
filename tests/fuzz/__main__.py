"""`python -m tests.fuzz --cases 100000 --seed 1`: fuzz every reader, state, model, setting and request.

`--make-corpus` writes the corpus anew. A finding is written to `--out`, and `python -m tests.fuzz --again FILE` runs it
again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "service", HERE.parent / "mobility"):
    sys.path.insert(0, str(folder))

import fuzz_corpus  # noqa: E402  # after the folders that it is in
import fuzz_engine  # noqa: E402
import fuzz_targets  # noqa: E402


def main() -> int:
    asked = _arguments()
    fuzz_targets.quiet()
    if asked.make_corpus:
        fuzz_corpus.write(fuzz_targets.CORPUS)
        return 0
    if asked.again:
        return _again(asked.again)
    names = asked.target or list(fuzz_targets.TARGETS)
    fuzz_engine.limit_memory()
    began = time.monotonic()
    figures = fuzz_engine.fuzz(names, asked.cases, asked.seed, asked.minutes * 60)
    asked.out.mkdir(parents=True, exist_ok=True)
    for finding in figures.findings.values():
        (asked.out / fuzz_engine.name_of(finding)).write_bytes(finding.content)
        print(f"{finding.target} {finding.file}: {finding.what}")
    by_target = ", ".join(f"{name} {n:,} ({figures.read[name]:,} read)" for name, n in sorted(figures.cases.items()))
    seconds = time.monotonic() - began
    print(f"{figures.cases.total():,} cases in {seconds:.0f} s, {len(figures.findings)} findings; {by_target}")
    if asked.figures:
        add_run(asked.figures, figures, asked.seed, seconds)
    return bool(figures.findings)


def add_run(path: Path, figures: fuzz_engine.Figures, seed: int, seconds: float) -> None:
    """Write what runs have shown in all: those that the file had before, and this one."""
    before = json.loads(path.read_text()) if path.exists() else {"cases": {}, "read": {}, "runs": []}
    run = {"seed": seed, "cases": figures.cases.total(), "seconds": round(seconds), "findings": len(figures.findings)}
    cases, read = Counter(before["cases"]) + figures.cases, Counter(before["read"]) + figures.read
    about = {"total": cases.total(), "cases": dict(cases), "read": dict(read), "runs": [*before["runs"], run]}
    path.write_text(json.dumps(about, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--target", action="append", choices=list(fuzz_targets.TARGETS))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="where findings go")
    parser.add_argument("--figures", type=Path, help="a JSON file that the counts are added to")
    parser.add_argument("--again", type=Path, help="one case again, with its traceback")
    parser.add_argument("--make-corpus", action="store_true")
    return parser.parse_args()


def _again(case: Path) -> int:
    target, name = fuzz_engine.split_name(case.name)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / target / name
        path.parent.mkdir()
        path.write_bytes(case.read_bytes())
        try:
            fuzz_targets.TARGETS[target].run(path)
        except fuzz_targets.REFUSED as error:
            print(f"refused: {error}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
