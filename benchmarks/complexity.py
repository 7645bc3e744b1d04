"""Cost over F, L, T and D, measured against the paper's count T(F²D + L²D), with a figure.

python benchmarks/complexity.py               one CPU core, about a minute
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from training import hardware, write
from ustad.network.blocks import Block


def clock(work: Callable[[], Any], repeats: int = 7) -> float:
    """Least processor seconds of a call, after one that warms up: other work on the machine hardly shows."""
    work()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


@torch.no_grad()
def cost(F: int = 8, L: int = 16, T: int = 8, D: int = 64) -> float:
    """Seconds of the T passes of a few windows at these sizes."""
    feature, event = Block(D, 4).eval(), Block(D, 4).eval()
    fields, events = torch.randn(T * 4 * L, F, D), torch.randn(T * 4, L, D)
    return clock(lambda: (feature.total(fields), event(events)))


SWEEPS = {"F": (4, 8, 16, 32, 64, 128), "L": (8, 16, 32, 64, 128, 256), "T": (2, 4, 8, 16, 32), "D": (32, 64, 128, 256)}


def claims(name: str, value: int) -> tuple[float, float]:
    """The paper's count T(F²D + L²D), and the whole one with the linear maps and one feature level per event."""
    size = {"F": 8, "L": 16, "T": 8, "D": 64, name: value}
    F, L, T, D = size["F"], size["L"], size["T"], size["D"]
    return T * (F**2 * D + L**2 * D), T * (L * (8 * F * D**2 + 2 * F**2 * D) + 12 * L * D**2 + 2 * L**2 * D)


def complexity(options: argparse.Namespace) -> None:
    """Measured cost over each size, relative to the first, beside both counts."""
    table: dict[str, list[dict[str, float]]] = {}
    for name, values in SWEEPS.items():
        table[name] = []
        for value in values:
            paper, whole = claims(name, value)
            row = {"size": value, "seconds": cost(**{name: value}), "paper": paper, "whole": whole}
            table[name].append(row)
            first = table[name][0]
            shown = [row[k] / first[k] for k in ("seconds", "paper", "whole")]
            print(
                f"{name} = {value:>4}: measured × {shown[0]:7.1f}, paper's count × {shown[1]:7.1f}, "
                f"whole count × {shown[2]:7.1f}",
                flush=True,
            )
    write({"hardware": hardware("cpu"), "sweeps": table}, options.out / "complexity.json")
    draw(table, options.figure)


def draw(table: dict[str, list[dict[str, float]]], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no figure: it needs matplotlib (pip install 'ustad[plots]')")
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ustad"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(12, 3), constrained_layout=True)
    for axis, (name, rows) in zip(axes, table.items(), strict=True):
        sizes = [r["size"] for r in rows]
        for key, label, style in (
            ("seconds", "measured", "o-"),
            ("paper", "T(F²D + L²D)", "k--"),
            ("whole", "with the linear maps", "k:"),
        ):
            axis.loglog(sizes, [r[key] / rows[0][key] for r in rows], style, label=label)
        axis.set_xlabel(name)
    axes[0].set_ylabel("cost, relative")
    axes[0].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    print(f"written to {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=root / "results")
    parser.add_argument("--figure", type=Path, default=root.parent / "docs" / "figures" / "complexity.svg")
    complexity(parser.parse_args())


if __name__ == "__main__":
    main()
