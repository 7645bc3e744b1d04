"""Training speed, data loading included, beside a plain eager loop; and the race to that loop's best loss.

    python benchmarks/training.py                              two CPU cores, about three minutes
    python benchmarks/training.py --device cuda                one GPU, about four minutes
    python benchmarks/training.py --device cuda --only race    one part; the others stay in the result file

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
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measured import write_result
from ustad import progress
from ustad.config import Config, TrainingConfig
from ustad.events.encoder import EventArrays
from ustad.events.windows import EventTensors, Queries, Windows, make_queries, make_windows
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.losses import masked_loss
from ustad.network.training.masked_step import draw_masks
from ustad.network.training.masked_task import fit
from ustad.network.training.validation import choose_queries, validate
from ustad.schema import Field

FIELDS = (
    *(Field(name, "number") for name in ("start_x", "start_y", "duration", "x", "y")),
    Field("poi", "category", 29),
    Field("weekday", "category", 8),
    Field("trip_shape", "vector", 16),
    Field("trip_speed", "vector", 16),
)
TRAIN_DAYS, DAYS = 21, 28
PAPER = {"model.width": 64, "model.event_blocks": 4, "training.batch_size": 128}
#: How steps are run; `training.acceleration` decides all three.
HOW = {name: vars(TrainingConfig)[name] for name in ("compile", "graphs", "precision")}


def change(config: Config, changes: dict[str, Any]) -> Config:
    """The configuration changed; how steps are run is set for the whole process."""
    for name, usual in HOW.items():
        setattr(TrainingConfig, name, changes.get(f"training.{name}", usual))
    return config.replace({k: v for k, v in changes.items() if k.removeprefix("training.") not in HOW})


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
    loss = masked_loss(predictions, features, every, FIELDS, config=config.training).total
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), config.training.clip_norm)
    optimizer.step()


def plain_optimizer(network: DualTransformer) -> torch.optim.Optimizer:
    """Adam in which embeddings learn as many times as fast as in the product, so that the loops alone differ."""
    gains, parameters = network.gains(), dict(network.named_parameters())
    rest = [parameter for name, parameter in parameters.items() if name not in gains]
    faster = {"params": [parameters[name] for name in gains], "lr": 1e-3 * max(gains.values())}
    return torch.optim.Adam([{"params": rest}, faster], lr=1e-3, weight_decay=1e-5)


def plain_loop(data: Data, config: Config, device: str, seconds: float, patience: int, epochs: int) -> dict[str, Any]:
    """Train until validation stops improving or time is up; the curve of (seconds, validation loss)."""
    network = build_network(FIELDS, config).to(device)
    optimizer = plain_optimizer(network)
    random, curve, windows, spent, processor = np.random.default_rng(0), [], 0, 0.0, 0.0
    network.train()
    for start, stop, length in list(plain_batches(data.windows, random, device))[:3]:  # warm up, not timed
        plain_step(network, optimizer, data.tensors.batch(start, stop, length), config)
    network = build_network(FIELDS, config).to(device)
    optimizer = plain_optimizer(network)
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
    """Windows per second of `fit`, the median of its epochs after the first two (which warm up, record, compile)."""
    size = config.training.batch_size
    some = data.windows.take(np.arange(min(len(data.windows), 128 * size)))  # an epoch of at most 128 steps
    config = config.replace({"training.max_minutes": seconds / 60, "training.epochs": 7, "training.patience": 99})
    began, busy = time.perf_counter(), time.process_time()
    few = (data.tensors, data.asked.take(np.arange(64)))  # validation is not what is measured here
    result = fit(build_network(FIELDS, config), data.tensors, some, few, config=config, device=device)
    history, steps = result.history, -(-len(some) // size)
    windows = len(some) * result.steps / steps
    rates = [e["windows_per_s"] for e in history[2:] or history[1:] or history] or [windows / result.seconds]
    rate = float(np.median(rates))
    return {
        "batch_size": size,
        "windows_per_s": rate,
        "windows_per_cpu_s": windows / (time.process_time() - busy),
        "epoch_seconds": len(data.windows) / rate,
        "first_epoch_seconds": history[0]["epoch_seconds"] if history else None,
        "epochs": len(history),
        "padding": history[0]["padding"] if history else None,
        "steps_per_epoch": steps,
        "seconds": round(time.perf_counter() - began, 1),
    }


def reach(data: Data, config: Config, device: str, target: float, seconds: float) -> dict[str, Any]:
    """Wall time of `fit` until its validation loss is as good as `target`, recording and validation included."""
    config = config.replace({"training.max_minutes": seconds / 60, "training.patience": 99})
    result = fit(
        build_network(FIELDS, config),
        data.tensors,
        data.windows,
        (data.tensors, data.asked),
        config=config,
        device=device,
    )
    curve = [(e["seconds"], e["validation"]) for e in result.history]
    there = next((second for second, loss in curve if loss <= target), None)
    return {
        "batch_size": config.training.batch_size,
        "learning_rate": config.training.learning_rate,
        "schedule": config.training.schedule,
        "precision": config.training.precision,
        "epochs": config.training.epochs,
        "windows_per_s": result.windows_per_s,
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
    write_result(path, results)
    print(f"written to {path}", flush=True)


def show(label: str, entry: dict[str, Any], plain: dict[str, Any] | None) -> None:
    """Rates by the wall clock and, where other work shares the processor, by processor time."""
    padding = f", padding {entry['padding']:.1%}" if entry.get("padding") is not None else ""
    shown = [f"{entry[key]:>11,.0f}" for key in ("windows_per_s", "windows_per_cpu_s")]
    if plain:
        for i, key in enumerate(("windows_per_s", "windows_per_cpu_s")):
            shown[i] += f" ({entry[key] / plain[key]:.1f} ×)"
    print(f"{label:<36}{shown[0]} windows/s, per processor second {shown[1]}{padding}", flush=True)


class Bench:
    """The parts of the benchmark; each adds its entries to one result file as soon as it has them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, options.device
        self.path = options.out / f"training{'_cuda' if self.device == 'cuda' else ''}.json"
        self.paper = Config.preset("paper", **PAPER)
        self.results: dict[str, Any] = {"hardware": hardware(self.device)}
        if options.only and self.path.exists():  # parts that were run before on the same machine stay
            before = json.loads(self.path.read_text())
            self.results = before if before["hardware"] == self.results["hardware"] else self.results

    @cached_property
    def large(self) -> Data:
        data = Data(self.options.agents, self.paper, self.device)
        self.results["windows"] = len(data.windows)
        print(
            f"{len(data.windows):,} windows of {data.mean_events:.1f} events on average, D = 64, M1 = 1, M2 = 4, w = 3",
            flush=True,
        )
        return data

    def plain(self) -> None:
        found = plain_loop(self.large, self.paper, self.device, self.options.seconds, 99, 1)
        self.results["plain"] = found
        show("plain loop, batch 128, eager fp32", found, found)
        write(self.results, self.path)

    def rates(self, part: str, sizes: list[int], changes: dict[str, str], seconds: float) -> None:
        self.results[part] = []
        for size in sizes:
            config = change(self.paper, {"training.batch_size": size, **changes})
            entry = our_rate(self.large, config, self.device, seconds)
            self.results[part].append(entry)
            show(f"ours, {part}, batch {size:,}", entry, self.results.get("plain"))
            write(self.results, self.path)

    def eager(self) -> None:
        """As it is on a CPU; on a GPU without recording."""
        self.rates("eager", self.options.eager_sizes, {"training.compile": "off", "training.graphs": "off"}, 12.0)

    def graphs(self) -> None:
        self.rates("graphs", self.options.batch_sizes, {"training.compile": "off"}, self.options.seconds)

    def compiled(self) -> None:
        self.rates("compiled", self.options.compiled_sizes, {"training.compile": "on"}, self.options.compile_seconds)

    def race(self) -> None:
        """Wall time to the plain loop's best validation loss on a smaller set, validation included."""
        options, data = self.options, Data(self.options.race_agents, self.paper, self.device)
        plain = plain_loop(data, self.paper, self.device, options.race_seconds, 3, 300)
        target, spent = plain["best_loss"], min(s for s, loss in plain["curve"] if loss == plain["best_loss"])
        print(f"plain loop: best loss {target:.4f} after {spent:.1f} s ({len(data.windows):,} windows)", flush=True)
        found: list[dict[str, Any]] = []
        self.results["race"] = {
            "windows": len(data.windows),
            "plain": plain,
            "plain_seconds": spent,
            "target": target,
            "ours": found,
        }
        for changes in options.racers:
            config = change(self.paper, {f"training.{k}": v for k, v in changes.items()} | {"training.compile": "off"})
            entry = reach(data, config, self.device, target, spent / options.race_share)
            found.append(entry)
            there, best = entry["seconds_to_target"], entry["best_loss"]
            said = f"{there:.1f} s, {spent / there:.1f} × sooner" if there else f"not reached ({best})"
            print(f"ours, {changes}: {said}, {entry['windows_per_s']:,.0f} windows/s", flush=True)
            write(self.results, self.path)

    def agreement(self) -> None:
        """Two short runs that should not differ, one of them recorded: validation losses by epoch."""
        data, changes = Data(200, self.paper, self.device), {"training.precision": "fp32", "training.compile": "off"}
        found = {}
        for graphs in ("auto", "off"):
            config = change(self.paper, {**changes, "training.graphs": graphs, "training.epochs": 3})
            given = build_network(FIELDS, config), data.tensors, data.windows, (data.tensors, data.asked)
            found[graphs] = [e["validation"] for e in fit(*given, config=config, device=self.device).history]
            print(f"graphs {graphs}: validation {found[graphs]}", flush=True)
        self.results["agreement"] = found
        write(self.results, self.path)

    def profile(self) -> None:
        """Which kernels a large step spends its time in, without recording and without compiling."""
        changes = {"training.batch_size": self.options.profile_size, "training.acceleration": "off"}
        config = change(self.paper, {**changes, "training.epochs": 1})
        some = self.large.windows.take(np.arange(min(len(self.large.windows), 4 * self.options.profile_size)))
        few = (self.large.tensors, self.large.asked.take(np.arange(64)))
        with torch.profiler.profile() as profiler:
            fit(build_network(FIELDS, config), self.large.tensors, some, few, config=config, device=self.device)
        key = "self_device_time_total" if self.device == "cuda" else "self_cpu_time_total"
        events = sorted(profiler.key_averages(), key=lambda e: -getattr(e, key))[:30]
        self.results["profile"] = [(e.key[:80], getattr(e, key) / 1e3, e.count) for e in events]
        for name, milliseconds, count in self.results["profile"]:
            print(f"{milliseconds:>9.1f} ms {count:>6} × {name}", flush=True)
        write(self.results, self.path)


PARTS = ("plain", "agreement", "graphs", "race", "eager", "compiled", "profile")
CPU: dict[str, Any] = {
    "agents": 60,
    "seconds": 12.0,
    "batch_sizes": [],
    "eager_sizes": [32, 64, 128],
    "compiled_sizes": [],
    "compile_seconds": 0.0,
    "race_agents": 20,
    "race_seconds": 40.0,
    "race_share": 1.0,
    "profile_size": 128,
    "parts": ("plain", "eager", "race"),
    "racers": [{"batch_size": 64, "learning_rate": 2e-3, "schedule": "cosine", "warmup_steps": 20, "epochs": 30}],
}
ANNEALED = {"recipe": "cosine"}
CUDA: dict[str, Any] = {
    "agents": 20_000,
    "seconds": 8.0,
    "batch_sizes": [128, 512, 2_048, 8_192, 16_384, 32_768],
    "eager_sizes": [512, 16_384],
    "compiled_sizes": [16_384],
    "compile_seconds": 75.0,
    "race_agents": 1_000,
    "race_seconds": 40.0,
    "race_share": 5.0,  # who takes longer than a fifth of the plain loop has lost
    "profile_size": 16_384,
    "parts": ("plain", "agreement", "graphs", "race", "eager", "compiled"),
    "racers": [
        {"batch_size": 128, "learning_rate": 2e-3, "precision": "fp32"},
        {"batch_size": 256, "learning_rate": 3e-3, "epochs": 24, "precision": "fp32", **ANNEALED},
        {"batch_size": 512, "learning_rate": 4e-3, "epochs": 36, **ANNEALED},
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="these parts alone; the others stay in the file")
    parser.add_argument("--agents", type=int, help="people in the throughput runs (default 60, on a GPU 20,000)")
    parser.add_argument("--seconds", type=float, help="time for each throughput run (default 12, on a GPU 8)")
    parser.add_argument("--batch-sizes", type=int, nargs="*", help="the curve of recorded batch sizes")
    parser.add_argument("--eager-sizes", type=int, nargs="*", help="the curve of batch sizes without recording")
    parser.add_argument("--compiled-sizes", type=int, nargs="*", help="batch sizes with compiled blocks")
    parser.add_argument("--race-agents", type=int, help="people in the race to the plain loop's loss")
    parser.add_argument("--race-seconds", type=float, help="the longest that the plain loop may take in the race")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    for name, value in (CUDA if options.device == "cuda" else CPU).items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    bench = Bench(options)
    progress.enable()  # says when steps cannot be recorded
    for part in options.only or options.parts:
        getattr(bench, part)()


if __name__ == "__main__":
    main()
