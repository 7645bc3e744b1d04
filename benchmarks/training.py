"""Training speed, data loading included, beside a plain eager loop; and cost against the paper's complexity claim.

    python benchmarks/training.py                 two CPU cores, under three minutes
    python benchmarks/training.py --device cuda   one GPU, under six minutes
    python benchmarks/training.py --complexity    cost over F, L, T and D, with a figure

The data are made here: people with homes, workplaces and habits, about three stays a day, nine fields. The plain
loop is the same network, batch 128, fp32, eager, shuffled indices, padded to the longest window of the batch, every
event computed and decoded. Both validate with the same function on the same questions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ustad.config import Config
from ustad.events.encoder import EventArrays
from ustad.events.windows import EventTensors, Queries, Windows, make_queries, make_windows
from ustad.model.losses import masked_loss
from ustad.model.network import DualTransformer, build_network
from ustad.schema import Field
from ustad.training.loop import fit
from ustad.training.step import draw_masks
from ustad.training.validation import choose_queries, validate

FIELDS = (
    *(Field(name, "number") for name in ("start_x", "start_y", "duration", "x", "y")),
    Field("poi", "category", 29),
    Field("weekday", "category", 8),
    Field("trip_shape", "vector", 16),
    Field("trip_speed", "vector", 16),
)
TRAIN_DAYS, DAYS = 21, 28
PAPER = {"model.width": 64, "model.event_blocks": 4, "window.past_share": 0.0, "training.batch_size": 128}


# ------------------------------------------------------------------------------------------------- data
def make_people(agents: int, seed: int = 0) -> EventArrays:
    """Routine days: each agent has four places with their own hours, and now and then goes elsewhere."""
    random = np.random.default_rng(seed)
    per_day = 1 + random.binomial(6, random.uniform(0.15, 0.55, (agents, 1)), (agents, DAYS))
    entity = np.repeat(np.arange(agents, dtype=np.int32), per_day.sum(axis=1))
    day = np.repeat(np.tile(np.arange(DAYS, dtype=np.int32), agents), per_day.ravel())
    n = len(entity)
    order = np.arange(n) - np.repeat(np.cumsum(per_day.ravel()) - per_day.ravel(), per_day.ravel())
    slot = np.where(random.random(n) < 0.15, random.integers(0, 4, n), order % 4)
    hour = random.normal(0, 1, (agents, 4))[entity, slot] + 3.0 * order + 6 + random.normal(0, 0.4, n)
    place = random.normal(0, 1, (agents, 4, 2))[entity, slot] + random.normal(0, 0.01, (n, 2))
    length = random.gamma(2, 0.5, (agents, 4))[entity, slot] + random.normal(0, 0.2, n)
    angle = hour / 24 * 2 * np.pi
    taste = random.integers(1, 29, (agents, 4))[entity, slot]
    before = np.roll(place, 1, axis=0)
    shift = np.concatenate([place - before, place], axis=1) @ random.normal(0, 0.5, (4, 32))
    missing = np.zeros((n, len(FIELDS)), bool)
    missing[:, -2:] = (order == 0)[:, None]  # no trip to the first stay of a day
    return EventArrays(
        fields=FIELDS,
        entity_ids=np.arange(agents),
        entity=entity,
        time=day.astype(np.int64) * 24 + hour.astype(np.int64),
        day=day,
        key=np.arange(n),
        numbers=np.stack([np.cos(angle), np.sin(angle), length, place[:, 0], place[:, 1]], 1).astype(np.float32),
        categories=np.stack([taste, day % 7 + 1], axis=1).astype(np.int32),
        vectors=np.where(missing[:, -1:], 0.0, shift + random.normal(0, 0.1, shift.shape)).astype(np.float32),
        missing=missing,
        row=np.arange(n),
    )


class Data:
    """Training windows of three weeks and questions about the fourth, on the device."""

    def __init__(self, agents: int, config: Config, device: str) -> None:
        arrays = make_people(agents)
        self.tensors = EventTensors(arrays, device)
        self.windows: Windows = make_windows(arrays, config.window, last_day=TRAIN_DAYS - 1)
        held = make_windows(arrays, config.window, first_day=TRAIN_DAYS)
        self.queries: Queries = make_queries(arrays, held, config.window)
        self.asked = choose_queries(self.queries, arrays.entity, config.training.validation_share, config.seed)
        self.mean_events = float(self.windows.length.mean())


# ------------------------------------------------------------------------------------------- plain loop
def plain_batches(windows: Windows, random: np.random.Generator, device: str) -> Iterator[tuple[Any, Any, int]]:
    order = random.permutation(len(windows))
    for first in range(0, len(order), 128):
        chosen = windows.take(order[first : first + 128])
        start, stop = (torch.from_numpy(a).to(device) for a in (chosen.start, chosen.stop))
        yield start, stop, int(chosen.length.max())


def plain_step(network: DualTransformer, optimizer: torch.optim.Optimizer, batch: Any, config: Config) -> None:
    masked = draw_masks(batch.padding, config.training.mask_ratio)
    predictions = network(batch, masked).map(lambda part: part[masked])
    features = batch.features[masked]
    every = torch.ones(len(features.missing), dtype=torch.bool, device=masked.device)
    loss = masked_loss(predictions, features, every, FIELDS, config.training).total
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), config.training.clip_norm)
    optimizer.step()


def plain_loop(data: Data, config: Config, device: str, seconds: float, patience: int, epochs: int) -> dict[str, Any]:
    """Train until validation stops improving or time is up; the curve of (seconds, validation loss)."""
    network = build_network(FIELDS, config).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    random, curve, windows, spent, processor = np.random.default_rng(0), [], 0, 0.0, 0.0
    network.train()
    for start, stop, length in list(plain_batches(data.windows, random, device))[:3]:  # warm up, not timed
        plain_step(network, optimizer, data.tensors.batch(start, stop, length), config)
    network = build_network(FIELDS, config).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    began = time.perf_counter()
    while len(curve) < epochs:
        network.train()
        epoch, busy = time.perf_counter(), time.process_time()
        for start, stop, length in plain_batches(data.windows, random, device):
            plain_step(network, optimizer, data.tensors.batch(start, stop, length), config)
            windows += len(start)
            if time.perf_counter() - began > seconds:
                break
        wait(device)
        spent += time.perf_counter() - epoch
        processor += time.process_time() - busy
        loss = validate(network, data.tensors, data.asked, config).total
        curve.append((round(time.perf_counter() - began, 2), loss))
        best = min(range(len(curve)), key=lambda i: curve[i][1])
        if time.perf_counter() - began > seconds or len(curve) - 1 - best >= patience:
            break
    return {
        "windows_per_s": windows / spent,
        "windows_per_cpu_s": windows / processor,
        "curve": curve,
        "best_loss": min(loss for _, loss in curve),
    }


# ----------------------------------------------------------------------------------------------- ours
def our_rate(data: Data, config: Config, device: str, seconds: float) -> dict[str, Any]:
    """Windows per second of `fit` after its first epoch (which warms up or compiles)."""
    steps = -(-len(data.windows) // config.training.batch_size)
    config = config.replace({"training.max_minutes": seconds / 60, "training.epochs": 6, "training.patience": 99})
    began, busy = time.perf_counter(), time.process_time()
    few = (data.tensors, data.asked.take(np.arange(64)))  # validation is not what is measured here
    result = fit(build_network(FIELDS, config), data.tensors, data.windows, few, config, device)
    history = result.history
    windows = len(data.windows) * result.steps / steps
    whole = windows / max(result.seconds, 1e-9)
    rate = max((e["windows_per_s"] for e in history[1:] or history), default=whole)
    return {
        "batch_size": config.training.batch_size,
        "compiled": config.training.compile == "on",
        "windows_per_s": rate,
        "windows_per_cpu_s": windows / (time.process_time() - busy),
        "epoch_seconds": len(data.windows) / rate,
        "first_epoch_seconds": history[0]["epoch_seconds"] if history else None,
        "padding": history[0]["padding"] if history else None,
        "steps_per_epoch": steps,
        "seconds": round(time.perf_counter() - began, 1),
    }


def reach(data: Data, config: Config, device: str, target: float, seconds: float) -> dict[str, Any]:
    """Wall time of `fit` until its validation loss is as good as `target`."""
    config = config.replace({"training.max_minutes": seconds / 60, "training.patience": 99})
    result = fit(build_network(FIELDS, config), data.tensors, data.windows, (data.tensors, data.asked), config, device)
    curve = [(e["seconds"], e["validation"]) for e in result.history]
    there = next((second for second, loss in curve if loss <= target), None)
    return {
        "batch_size": config.training.batch_size,
        "compiled": config.training.compile == "on",
        "curve": curve,
        "best_loss": min((loss for _, loss in curve), default=None),
        "seconds_to_target": there,
    }


# --------------------------------------------------------------------------------------------- report
def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def hardware(device: str) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def write(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {path}")


def show(label: str, entry: dict[str, Any], plain: dict[str, Any]) -> None:
    """Rates by the wall clock and, where other work shares the processor, by processor time."""
    padding = f", padding {entry['padding']:.1%}" if entry.get("padding") is not None else ""
    ratios = [entry[key] / plain[key] for key in ("windows_per_s", "windows_per_cpu_s")]
    print(
        f"{label:<36}{entry['windows_per_s']:>11,.0f} windows/s {ratios[0]:>6.1f} ×, "
        f"per processor second {entry['windows_per_cpu_s']:>9,.0f} {ratios[1]:>6.1f} ×{padding}",
        flush=True,
    )


def speed(options: argparse.Namespace) -> None:
    device, cuda = options.device, options.device == "cuda"
    paper = Config.preset("paper", **PAPER)
    large = Data(options.agents, paper, device)
    print(f"{len(large.windows):,} windows of {large.mean_events:.1f} events on average, D = 64, M1 = 1, M2 = 4, w = 3")
    results: dict[str, Any] = {"hardware": hardware(device), "windows": len(large.windows)}
    plain = plain_loop(large, paper, device, options.seconds, 99, 1)
    results["plain"] = plain
    show("plain loop, batch 128, eager fp32", plain, plain)
    results["ours"] = []
    runs = [(size, "off") for size in options.batch_sizes] + [(size, "on") for size in options.compiled_sizes]
    for size, compiled in runs:
        config = paper.replace({"training.batch_size": size, "training.compile": compiled})
        entry = our_rate(large, config, device, 300.0 if compiled == "on" else options.seconds)
        results["ours"].append(entry)
        show(f"ours, batch {size:,}{', compiled' if compiled == 'on' else ''}", entry, plain)
        write(results, options.out / f"training{'_cuda' if cuda else ''}.json")
    if options.race_agents:
        results["race"] = race(options, paper)
        write(results, options.out / f"training{'_cuda' if cuda else ''}.json")


def race(options: argparse.Namespace, paper: Config) -> dict[str, Any]:
    """Wall time to the plain loop's best validation loss on a smaller set, validation included."""
    data = Data(options.race_agents, paper, options.device)
    plain = plain_loop(data, paper, options.device, options.race_seconds, 3, 300)
    target, spent = plain["best_loss"], min(s for s, loss in plain["curve"] if loss == plain["best_loss"])
    print(
        f"plain loop: best validation loss {target:.4f} after {spent:.1f} s ({len(data.windows):,} windows)", flush=True
    )
    found = []
    for size, rate, epochs in options.racers:
        config = paper.replace(
            {
                "training.batch_size": size,
                "training.learning_rate": rate,
                "training.schedule": "cosine",
                "training.optimizer": "adamw",
                "training.warmup_steps": 20,
                "training.epochs": epochs,
                "training.compile": "off",
            }
        )
        entry = {**reach(data, config, options.device, target, options.race_seconds), "learning_rate": rate}
        found.append(entry)
        there = entry["seconds_to_target"]
        said = f"{there:.1f} s, {spent / there:.1f} × sooner" if there else f"not reached ({entry['best_loss']})"
        print(f"ours, batch {size:,}, rate {rate}: {said}", flush=True)
    return {"windows": len(data.windows), "plain": plain, "plain_seconds": spent, "target": target, "ours": found}


# ------------------------------------------------------------------------------------------ complexity
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
    from ustad.model.blocks import Block

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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--agents", type=int, help="people in the throughput runs (default 60, on a GPU 20,000)")
    parser.add_argument("--seconds", type=float, help="time for each throughput run (default 12, on a GPU 20)")
    parser.add_argument("--batch-sizes", type=int, nargs="*", help="the curve of eager batch sizes")
    parser.add_argument(
        "--compiled-sizes", type=int, nargs="*", help="batch sizes to compile (half a minute per length)"
    )
    parser.add_argument("--race-agents", type=int, help="people in the race to the plain loop's loss; 0: no race")
    parser.add_argument("--race-seconds", type=float, help="the longest that either may take in the race")
    parser.add_argument("--complexity", action="store_true", help="only the cost over F, L, T and D")
    root = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=root / "results")
    parser.add_argument("--figure", type=Path, default=root.parent / "docs" / "figures" / "complexity.svg")
    options = parser.parse_args()
    if options.complexity:
        complexity(options)
        return
    cuda = options.device == "cuda"
    defaults = {
        "agents": 20_000 if cuda else 60,
        "seconds": 20.0 if cuda else 12.0,
        "batch_sizes": [128, 512, 2_048, 8_192, 16_384, 32_768] if cuda else [32, 64, 128],
        "compiled_sizes": [16_384] if cuda else [],
        "race_agents": 2_000 if cuda else 0,  # few steps fit into minutes on a CPU
        "race_seconds": 90.0 if cuda else 40.0,
    }
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.racers = [(1_024, 4e-3, 25), (4_096, 6e-3, 60)] if cuda else [(64, 2e-3, 40)]
    speed(options)


if __name__ == "__main__":
    main()
