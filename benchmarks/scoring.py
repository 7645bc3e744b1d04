"""How fast events are scored, beside the plain ways, in one run.

    python benchmarks/scoring.py --device cpu
    python benchmarks/scoring.py --device cuda --events 1700000 --references 1300000

Data is made up on the spot: 12-event windows (days d − 3 … d, three events a day), the nine fields of the paper's
stay (start, duration, x, y, kind of place, day of week, two trip vectors), D = 64, M1 = 1, M2 = 4, T = 50. The
weights are random: speed does not depend on them. Prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from measured import write_result
from ustad.config import Config
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.windows import EventTensors, Queries, make_queries, make_windows
from ustad.live.network_live import LiveScorer
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.neighbours import Reference
from ustad.network.inference.paper_network import PaperNetwork
from ustad.network.inference.sampling import embed_events, sample
from ustad.paper_fitting import calibrate, make_causal
from ustad.schema import mobility_schema
from ustad.scoring.judge import Request
from ustad.scoring.paper_judge import PaperJudge
from ustad.scoring.scored_parts import score_whole

SAMPLES, PER_DAY, FIRST_DAY = 50, 3, 19723
DAY_US = 86_400_000_000
WORDS = [f"kind {i:02d}" for i in range(28)]


def make_table(agents: int, days: int, seed: int = 0) -> pa.Table:
    """Stays with every column of the schema."""
    rng = np.random.default_rng(seed)
    n = agents * days * PER_DAY
    agent = np.repeat(np.arange(agents), days * PER_DAY)
    day = np.tile(np.repeat(np.arange(days), PER_DAY), agents)
    slot = np.tile(np.arange(PER_DAY), agents * days)
    start = (FIRST_DAY + day) * DAY_US + slot * 8 * 3_600_000_000 + rng.integers(0, 3_600_000_000, n)
    vectors = {f"trip_{w}": pa.array(list(rng.normal(size=(n, 16)).astype(np.float32))) for w in ("shape", "speed")}
    moment = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "stay_id": np.arange(n),
            "agent_id": agent,
            "started_at": pa.array(start).cast(moment),
            "finished_at": pa.array(start + rng.integers(1, 6 * 3_600_000_000, n)).cast(moment),
            "lat": 34 + rng.normal(0, 0.2, n),
            "lon": -118 + rng.normal(0, 0.2, n),
            "poi_category": pa.array(np.array(WORDS)[rng.integers(0, len(WORDS), n)]),
            **vectors,
        }
    )


def make_arrays(encoder: Encoder, agents: int, days: int, seed: int = 1) -> EventArrays:
    """The same as arrays at once: no table of millions of rows is needed to measure the network."""
    rng = np.random.default_rng(seed)
    n = agents * days * PER_DAY
    sizes = {k: [f.size for f in encoder.fields if f.kind == k] for k in ("number", "category", "vector")}
    codes = [rng.integers(1, size, n) for size in sizes["category"]]
    return EventArrays(
        fields=encoder.fields,
        entity_ids=np.arange(agents),
        entity=np.repeat(np.arange(agents), days * PER_DAY).astype(np.int32),
        time=np.arange(n) * 1_000_000,
        day=np.tile(np.repeat(np.arange(days), PER_DAY), agents).astype(np.int32),
        key=rng.integers(0, 2**62, n),
        numbers=rng.normal(size=(n, len(sizes["number"]))).astype(np.float32),
        categories=np.stack(codes, axis=1).astype(np.int32),
        vectors=rng.normal(size=(n, sum(sizes["vector"]))).astype(np.float32),
        missing=np.zeros((n, len(encoder.fields)), bool),
        row=np.arange(n),
    )


def seconds(work: Callable[[], Any], repeats: int, device: torch.device) -> tuple[float, float]:
    """Median wall and CPU time of one call, after one that is not counted."""
    times = []
    for i in range(repeats + 1):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if i:
            times.append((time.perf_counter() - began, time.process_time() - cpu))
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def in_ms(name: str, taken: tuple[float, float]) -> dict[str, float]:
    return {f"{name}ms": 1e3 * taken[0], f"{name}cpu_ms": 1e3 * taken[1]}


# ------------------------------------------------------------------------------------------- plain ways
def plain_pass(network: DualTransformer, tensors: EventTensors, query: Queries, copies: int) -> torch.Tensor:
    """The whole network with torch's own dropout on one window, `copies` times in one batch."""
    start, stop = (torch.from_numpy(np.repeat(v, copies)).to(tensors.device) for v in (query.start, query.stop))
    batch = tensors.batch(start, stop, int(query.length[0]))
    masked = batch.index == torch.from_numpy(query.target).to(tensors.device)
    at = int(query.target[0] - query.start[0])
    return network(batch, masked).mean[:, at]


def plain(network: DualTransformer, tensors: EventTensors, query: Queries, together: bool) -> torch.Tensor:
    network.train()  # dropout on
    with torch.no_grad():
        if together:
            made = plain_pass(network, tensors, query, SAMPLES)
        else:
            made = torch.cat([plain_pass(network, tensors, query, 1) for _ in range(SAMPLES)])
        result = torch.stack([made.mean(0), made.var(0, correction=0)]).cpu()
    network.eval()
    return result


# ---------------------------------------------------------------------------------------------- measures
def measure_plain(network: DualTransformer, tensors: EventTensors, queries: Queries) -> dict[str, float]:
    one = queries.take(np.array([len(queries) // 2]))
    return {
        **in_ms("sequential_", seconds(lambda: plain(network, tensors, one, False), 5, tensors.device)),
        **in_ms("one_batch_", seconds(lambda: plain(network, tensors, one, True), 10, tensors.device)),
    }


def measure_bulk(
    network: DualTransformer, tensors: EventTensors, queries: Queries, encoder: Encoder, warm: int
) -> dict[str, float]:
    sample(network, tensors, queries.take(np.arange(min(warm, len(queries)))), encoder, samples=SAMPLES, seed=7)
    if tensors.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    began, cpu = time.perf_counter(), time.process_time()
    sample(network, tensors, queries, encoder, samples=SAMPLES, seed=7)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    result = {"events": len(queries), "seconds": took, "cpu_seconds": cpu, "events_per_s": len(queries) / took}
    result["cpu_ms_per_event"] = 1e3 * cpu / len(queries)
    if tensors.device.type == "cuda":
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    began = time.perf_counter()
    embed_events(network, tensors, queries)
    result["embedding_events_per_s"] = len(queries) / (time.perf_counter() - began)
    return result


def cloud(count: int, width: int, seed: int) -> np.ndarray:
    """Points with the few directions that embeddings have, not a ball in which all are equally far."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(99).normal(size=(12, width)).astype(np.float32)
    points = rng.normal(size=(count, 12)).astype(np.float32) @ basis
    return points + 0.1 * rng.normal(size=(count, width)).astype(np.float32)


def measure_neighbours(count: int, references: int, width: int, device: torch.device) -> dict[str, float]:
    reference = Reference(cloud(references, width, 1), np.zeros(references, np.int64))
    asked = cloud(count, width, 2)
    reference.mean_distance(asked[:256], 150, device)
    began = time.perf_counter()
    reference.mean_distance(asked, 150, device)
    took = time.perf_counter() - began
    return {"queries": count, "references": references, "seconds": took, "queries_per_s": count / took}


def measure_live(
    network: DualTransformer, encoder: Encoder, config: Config, references: int, device: torch.device
) -> dict[str, Any]:
    table = make_table(6, 14, seed=5)
    day = table["started_at"].cast(pa.int64()).to_numpy() // DAY_US - FIRST_DAY
    early = table.filter(pa.array(day < 6))
    judge = calibrate(PaperNetwork.of_events(network.to(device), encoder, config, early), early, FIRST_DAY + 4)
    judge.source.neighbours = reference = Reference(
        cloud(references, config.model.width, 3), np.zeros(references, np.int64)
    )
    scorer = LiveScorer(judge, device, neighbours="exact" if device.type == "cuda" else "approximate")
    scorer.warm(table.filter(pa.array((day >= 2) & (day < 9))))
    rows = table.filter(pa.array(day >= 9)).sort_by("started_at").to_pylist()
    times, made = [], []
    for row in rows:
        began, cpu = time.perf_counter(), time.process_time()
        made.append(scorer.update(row))
        times.append((time.perf_counter() - began, time.process_time() - cpu))
    warm = times[len(times) // 4 :]
    wall, cpu = (statistics.median(t[i] for t in warm) for i in (0, 1))
    result: dict[str, Any] = {"ms": 1e3 * wall, "cpu_ms": 1e3 * cpu, "events_per_s": 1 / wall, "references": references}
    state = next(iter(scorer._states.values()))
    result |= in_ms("network_and_knn_", seconds(lambda: scorer._measure(state), 20, device))
    if reference.lists is not None:
        result |= {"recall": reference.lists.recall, "distance_error": reference.lists.error}
    return result | {"loss_differs_from_batch": _difference(judge, table, day, made)}


def _difference(judge: PaperJudge[Any], table: pa.Table, day: np.ndarray, made: list[dict[str, Any]]) -> float:
    """Largest relative difference of a loss between live and batch scoring with the window `past`."""
    judge = make_causal(judge)
    judge.source.neighbours = None
    late, early = (table.filter(pa.array(rows)) for rows in (day >= 9, day < 9))
    batch = score_whole(judge, late, early, Request(details=True)).details
    assert batch is not None
    wanted = {row["stay_id"]: row for row in batch.to_pylist()}
    losses = [c for c in batch.column_names if c.startswith("loss_")]
    pairs = [(row[c], wanted[row["stay_id"]][c]) for row in made for c in losses if row[c] is not None]
    return max(abs(live - other) / (abs(other) + 1e-2) for live, other in pairs)


# ------------------------------------------------------------------------------------------------ report
def table_rows(results: dict[str, Any]) -> list[tuple[str, str]]:
    plain_way, bulk, near, live = (results[k] for k in ("plain", "bulk", "neighbours", "live"))
    faster = bulk["events_per_s"] * plain_way["sequential_ms"] / 1e3
    rows = [
        ("plain: one event, 50 passes one after the other", f"{plain_way['sequential_ms']:.2f} ms"),
        ("plain: one event, the 50 passes as one batch", f"{plain_way['one_batch_ms']:.2f} ms"),
        ("in bulk, T = 50", f"{bulk['events_per_s']:,.0f} events/s ({bulk['seconds']:.1f} s)"),
        ("   CPU time of one event", f"{bulk['cpu_ms_per_event']:.2f} ms"),
        ("   against the sequential way", f"{faster:.1f} times as fast"),
        ("embeddings for neighbours", f"{bulk['embedding_events_per_s']:,.0f} events/s"),
        (f"exact kNN, k = 150, {near['references']:,} references", f"{near['queries_per_s']:,.0f} queries/s"),
        (f"   {near['queries']:,} queries", f"{near['seconds']:.1f} s"),
        (f"live, kNN of {live['references']:,} included", f"{live['ms']:.2f} ms, {live['events_per_s']:.0f} events/s"),
        ("   CPU time", f"{live['cpu_ms']:.2f} ms"),
        ("   of that network, T = 50, and kNN", f"{live['network_and_knn_ms']:.2f} ms"),
        ("   losses differ from batch scoring by at most", f"{live['loss_differs_from_batch']:.1e}"),
    ]
    if "recall" in live:
        rows.append(("   approximate index", f"recall {live['recall']:.3f}, error {live['distance_error']:.2%}"))
    if "peak_gib" in bulk:
        rows.append(("peak GPU memory in bulk", f"{bulk['peak_gib']:.1f} GiB"))
    return rows


def hardware(device: torch.device) -> dict[str, Any]:
    names = [line.split(":")[1].strip() for line in _cpu_info() if line.startswith("model name")]
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _cpu_info() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--events", type=int, help="events scored in bulk (default: 600, on a GPU 1,700,000)")
    parser.add_argument("--queries", type=int, help="kNN queries (default: 500, on a GPU as many as events)")
    parser.add_argument("--references", type=int, help="kNN reference events (default: 100,000, on a GPU 1,300,000)")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    given = parser.parse_args()
    device = torch.device(given.device)
    gpu = device.type == "cuda"
    events = given.events or (1_700_000 if gpu else 600)
    references = given.references or (1_300_000 if gpu else 100_000)
    config = Config.preset("paper", **{"model.width": given.width, "scoring.percentiles": "calibrated"})
    schema = mobility_schema(trips="embedding")
    encoder = Encoder.fit(make_table(4, 7), schema)
    network = DualTransformer(encoder.fields, config.model, config.window.max_events).to(device).eval()
    scored_days = 28
    arrays = make_arrays(encoder, max(2, -(-events // (scored_days * PER_DAY))), scored_days + 3)
    queries = make_queries(arrays, make_windows(arrays, config.window, first_day=3), config.window)
    queries = queries.take(np.arange(min(events, len(queries))))
    tensors = EventTensors(arrays, device)
    results: dict[str, Any] = {
        "hardware": hardware(device),
        "setting": {"width": given.width, "samples": SAMPLES, "window": float(queries.length.mean())},
        "plain": measure_plain(network, tensors, queries),
        "bulk": measure_bulk(network, tensors, queries, encoder, 200_000 if gpu else 60),
        "neighbours": measure_neighbours(given.queries or (events if gpu else 500), references, given.width, device),
        "live": measure_live(network, encoder, config, references, device),
    }
    for name, value in table_rows(results):
        print(f"{name:60s} {value}")
    out = given.out or Path(__file__).parent / "results" / ("scoring-cuda.json" if gpu else "scoring.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_result(out, results)
    print(f"written to {out.name}")


if __name__ == "__main__":
    main()
