"""`python -m tests.simulated_service --seeds 100 --days 20`: many services, each from a seed of its own.

`--first 17 --seeds 1` runs one seed again, and shows what happened before it failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "service", HERE.parents[1] / "benchmarks"):
    sys.path.insert(0, str(folder))

from plain_list import ViolatedError  # noqa: E402

from measured import describe_run  # noqa: E402  # after the folders that it is in
from simulated_service import simulate, small_detector  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulated_service", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--days", type=int, default=20, help="of each service")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--out", type=Path, help="a JSON file that the figures are added to")
    asked = parser.parse_args()
    before = json.loads(asked.out.read_text()) if asked.out and asked.out.exists() else {"runs": [], "figures": {}}
    small_detector()
    began, figures, failed = time.monotonic(), Counter[str](), []
    for seed in range(asked.first, asked.first + asked.seeds):
        try:
            figures.update(simulate(seed, asked.days).figures)
        except ViolatedError as error:
            failed.append(seed)
            print(error, flush=True)
        if asked.out:
            add_run(asked.out, (asked.first, seed), failed, figures, before)
        if time.monotonic() - began > 60 * asked.minutes:
            break
    rate = figures["days"] / (time.monotonic() - began) * 60
    print(f"{figures['days']:,} days of services, {rate:.0f} a minute, {len(failed)} seeds failed: {failed}")
    print(", ".join(f"{name} {n:,}" for name, n in sorted(figures.items())))
    return bool(failed)


def add_run(path: Path, seeds: tuple[int, int], failed: list[int], figures: dict[str, int], before: Any) -> None:
    """Write what runs have shown in all: those that the file had before this one, and this one up to its last seed."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    facts = {**describe_run(), "command": " ".join(["python -m tests.simulated_service", *words])}
    one = {"first_seed": seeds[0], "last_seed": seeds[1], "failed_seeds": failed, "command": facts["command"]}
    total = dict(Counter(before["figures"]) + Counter(figures))
    content = {"days": total["days"], "runs": [*before["runs"], one], "figures": total, **facts}
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
