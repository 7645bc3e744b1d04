"""Tables of docs/evidence/scoring.md from the result files of scoring.py, calibrated.py and verdicts.py.

python benchmarks/scoring_tables.py           writes them into the page, between their marks
"""

from __future__ import annotations

from typing import Any

from marked_pages import DOCS, met, read, table, write

PAGE = DOCS / "evidence" / "scoring.md"
#: What is asked of an H200: events/s in bulk, (queries, references, seconds) of exact kNN, ms of a live event.
GPU_BULK, GPU_NEAR, GPU_LIVE = 60_000, (1_700_000, 1_300_000, 60), 3
#: And of two CPU cores: events/s in bulk, times the sequential way, events/s live.
CPU_BULK, CPU_FASTER, CPU_LIVE = 250, 10, 80


def speed() -> str:
    """What the GPU and the CPU did, and what was asked of them."""
    gpu, cpu = read("scoring-cuda"), read("scoring")
    head = ("", gpu["hardware"]["device"], f"{cpu['hardware']['threads']} CPU cores ({cpu['hardware']['cpu']})")
    left, right = _column(gpu), _column(cpu)
    said = cpu.get("note") or (
        f"The CPU was measured with a load of {cpu['hardware']['load']:.1f} at the start; its processor time says what "
        "it would take alone."
    )
    rows = [(name, left[name], right[name]) for name in left]
    return f"{table(head, rows)}\n\n{said}\n\n{goals(gpu, cpu)}"


def goals(gpu: dict[str, Any], cpu: dict[str, Any]) -> str:
    """What was asked of each machine, what came out, and whether that is enough."""
    here, there = (found["hardware"] for found in (gpu, cpu))
    names = (here["device"], f"{there['threads']} CPU cores")
    bulk, live, near, faster = cpu["bulk"], cpu["live"], gpu["neighbours"], _times_as_fast(cpu)
    queries, references, seconds = GPU_NEAR
    whole = near["queries"] >= queries and near["references"] >= references
    rows = [
        (names[0], f"in bulk ≥ {GPU_BULK:,} events/s", *_rate(gpu["bulk"]["events_per_s"], GPU_BULK)),
        (names[0], f"exact kNN of {queries:,} against {references:,} in < {seconds} s", f"{near['seconds']:.1f} s",
         met(near["seconds"], seconds, at_least=False) if whole else "not measured"),
        (names[0], f"live < {GPU_LIVE} ms", f"{gpu['live']['ms']:.1f} ms", met(gpu["live"]["ms"], GPU_LIVE, False)),
        (names[1], f"in bulk ≥ {CPU_BULK} events/s",
         *_rate(bulk["events_per_s"], CPU_BULK, 1e3 * there["threads"] / bulk["cpu_ms_per_event"])),
        (names[1], f"in bulk ≥ {CPU_FASTER} times the sequential way", f"{faster:.0f} times", met(faster, CPU_FASTER)),
        (names[1], f"live ≥ {CPU_LIVE} events/s", *_rate(live["events_per_s"], CPU_LIVE, 1e3 / live["cpu_ms"])),
    ]  # fmt: skip
    return table(("on", "goal", "measured", ""), rows)


def _rate(measured: float, goal: float, alone: float | None = None) -> tuple[str, str]:
    """Events a second and whether they are enough; where not, what the processor time says of an idle machine."""
    said = met(measured, goal)
    why = f"; by its processor time {alone:,.0f}" if said == "missed" and alone else ""
    return f"{measured:,.0f} events/s{why}", said


def _times_as_fast(found: dict[str, Any]) -> float:
    """In bulk, against one event after the other and one pass after the other."""
    return float(found["bulk"]["events_per_s"] * found["plain"]["sequential_ms"] / 1e3)


def _column(found: dict[str, Any]) -> dict[str, str]:
    plain, bulk, near, live = (found[k] for k in ("plain", "bulk", "neighbours", "live"))
    processor = f", processor time {bulk['cpu_ms_per_event']:.2g} ms an event" if "cpu_ms_per_event" in bulk else ""
    lists = f", lists: recall {live['recall']:.3f}, error {live['distance_error']:.2%}" if "recall" in live else ""
    return {
        "plain, one event: 50 passes one after the other": f"{plain['sequential_ms']:.0f} ms",
        "plain, one event: the 50 passes as one batch": f"{plain['one_batch_ms']:.1f} ms",
        "in bulk": f"{bulk['events_per_s']:,.0f} events/s ({bulk['events']:,} in {bulk['seconds']:.1f} s{processor})",
        "in bulk, against the sequential way": f"{_times_as_fast(found):,.0f} times as fast",
        "exact kNN, k = 150": f"{near['queries']:,} queries against {near['references']:,} in {near['seconds']:.1f} s",
        "live, one event, kNN included": f"{live['ms']:.1f} ms, {live['events_per_s']:.0f} events/s "
        f"(against {live['references']:,}{lists})",
        "of that, network and kNN": f"{live['network_and_knn_ms']:.1f} ms",
        "live, processor time": f"{live['cpu_ms']:.1f} ms" if "cpu_ms" in live else "–",
        "live losses differ from batch by at most": f"{live['loss_differs_from_batch']:.0e}"
        if "loss_differs_from_batch" in live
        else "–",
    }


def calibrated() -> str:
    """All ways to make percentiles of the same losses and distances."""
    found = read("calibrated")
    setting, means, runs = found["setting"], found["means"], found["runs"]
    names = list(means["batch"])
    head = ("percentiles", *(n.replace("_", " ").replace("auroc", "AUROC").replace("ap", "AP") for n in names))
    rows = [
        (way, *(f"{values[n]:.3f}" if n in values else "" for n in names))
        for way, values in means.items()
        if way not in ("calibrated - batch", "spread")
    ]
    apart = [f"{means['calibrated - batch'][n]:+.3f} ± {means['spread'][n]:.3f}" for n in names]
    bad, people = (sum(r[k] for r in runs) for k in ("anomalous_agents", "agents"))
    said = (
        f"Simulated numosim-la, {len(runs)} cities of {setting['agents']} people and {setting['days']} days; {bad} of "
        f"the {people:,} people are anomalous. D = {setting['width']}, T = {setting['samples']}, "
        f"{setting['epochs']} epochs; means over the cities, ± one standard deviation over draws of people."
    )
    return f"{said}\n\n{table(head, [*rows, ('calibrated - batch', *apart)])}"


def machines() -> str:
    """Scores of one model on a GPU against those on a CPU."""
    found = read("machines-cuda")
    names = {"habits": "in bulk", "habits, live": "one by one", "network": "in bulk", "network, live": "one by one"}
    rows = []
    for preset, differences in found["differences"].items():
        for question, figures in differences["cuda"].items():
            if question in names:
                apart = f"{figures['largest']:.2g}", f"{figures['median']:.2g}", f"{figures['over 1e-6']:,}"
                words = ", ".join(f"{figures[word]:,}" for word in ("kind", "alert", "reason"))
                rows.append((f"`{preset}`, {names[question]}", f"{figures['events']:,}", *apart, words))
    head = ("", "events", "largest difference", "median", "differ by over 1e-6", "other kind, alert, sentence")
    gpu = found["facts"]["devices"][0]
    said = f"{gpu} against its host's CPU, one model trained on the CPU, {found['agents']} people of a small town"
    return f"{said} (`python benchmarks/machines.py`):\n\n{table(head, rows)}"


def verdicts() -> str:
    """Precision after so many verdicts, and the mean weights."""
    result = read("verdicts")
    head = ("analyst", "verdicts", "precision", "lowest … highest town", "weights (mean)")
    rows = [
        (
            row["analyst"],
            str(row["verdicts"]),
            f"{row['mean']:.3f}",
            f"{min(row['precision']):.2f} … {max(row['precision']):.2f}",
            ", ".join(f"{name} {weight:.2f}" for name, weight in row["weights"].items()) or "1 for all",
        )
        for row in result["rows"]
    ]
    seeds = result["seeds"]
    towns = f"{len(seeds)} towns of {result['people']} people, `quick`, development seeds {seeds[0]} to {seeds[-1]}"
    said = f"{towns}; {100 * result['wrong_verdicts']:.0f} % of the verdicts are mistaken."
    return f"{said}\n\n{table(head, rows)}"


BLOCKS = {"machines": machines, "speed": speed, "calibrated": calibrated, "verdicts": verdicts}


if __name__ == "__main__":
    write(PAGE, BLOCKS)
