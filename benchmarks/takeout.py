"""How long one person waits from a Google Takeout of ten years to a report.

    python benchmarks/takeout.py                     5 M fixes; writes benchmarks/results/takeout.json
    python benchmarks/takeout.py --fixes 500000 --years 1

A made-up life of a home, workplaces that change, friends and holidays becomes a `Records.json` as Google writes it,
with activities and other keys that nobody asks for. Then the verbs run by the clock, as a person would
type them: extract, train with the preset quick, score, report. A small file goes through before, so that compiled code
is there. Wall time counts what else the machine does; processor time does not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from measured import write_result

RESULTS = Path(__file__).parent / "results" / "takeout.json"
START = 1_388_534_400  # 2014-01-01 in UTC
DAY = 86_400
ASKED_S = 60.0
CHUNK = 200_000
ACTIVITY = """,
    "activity": [{
      "activity": [{
        "type": "STILL",
        "confidence": 92
      }, {
        "type": "UNKNOWN",
        "confidence": 8
      }],
      "timestamp": "%s"
    }]"""


def plan_visits(days: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Arrivals and departures (seconds since the first midnight) alternating [2 n], and a place (m east, north) for
    each [2 n, 2]."""
    friends = rng.normal(0, 6_000, (40, 2))
    works = rng.normal(0, 5_000, (4, 2))
    knots: list[float] = []
    sites: list[np.ndarray] = []
    home = np.zeros(2)

    def stay(begin: float, end: float, site: np.ndarray) -> None:
        knots.extend((begin, end))
        sites.extend((site, site))

    for day in range(days):
        base = day * DAY
        away = rng.normal(0, 300_000, 2) if day % 365 >= 351 else None  # two weeks of holidays a year
        work = works[min(3, day * 4 // days)]
        centre = home if away is None else away
        leave = base + 8.2 * 3600 + rng.normal(0, 1200)
        stay(base + 600, leave, centre)
        at = leave + 1500
        if day % 7 < 5 and away is None:
            stay(at, base + 17 * 3600 + rng.normal(0, 1500), work)
            at = knots[-1] + 1500
        for _ in range(rng.integers(0, 3)):
            length = rng.gamma(2.0, 1800.0) + 900
            stay(at, at + length, centre + friends[min(39, rng.geometric(0.15) - 1)])
            at = knots[-1] + 1200
        stay(at, base + DAY, centre)
        knots[-1] = max(knots[-1], at + 600)
    order = np.maximum.accumulate(np.array(knots))
    return order, np.array(sites)


def write_records(file: Path, fixes: int, years: float) -> int:
    """A `Records.json` of one life; returns its size in bytes."""
    rng = np.random.default_rng(7)
    days = round(365.25 * years)
    knots, sites = plan_visits(days, rng)
    clock = np.sort(rng.uniform(600, days * DAY, fixes))
    accuracy = np.round(rng.gamma(2.0, 8.0, fixes) + 3).astype(int)
    noise = rng.normal(0, 1, (fixes, 2)) * np.minimum(accuracy, 40)[:, None] / 2
    xy = np.stack([np.interp(clock, knots, sites[:, i]) for i in (0, 1)], axis=1) + noise
    lat = np.round((60.17 + xy[:, 1] / 111_195) * 1e7).astype(np.int64)
    lon = np.round((24.94 + xy[:, 0] / 55_300) * 1e7).astype(np.int64)
    with file.open("w", encoding="ascii") as stream:
        stream.write('{\n  "locations": [')
        for first in range(0, fixes, CHUNK):
            part = slice(first, min(first + CHUNK, fixes))
            _write_entries(stream, first, clock[part], lat[part], lon[part], accuracy[part])
        stream.write("]\n}\n")
    return file.stat().st_size


def _write_entries(stream: TextIO, first: int, *columns: np.ndarray) -> None:
    moments = np.datetime_as_string(
        (np.int64(START) * 1000 + (columns[0] * 1000).astype(np.int64)).astype("datetime64[ms]"), unit="ms"
    )
    entries = []
    for i, (moment, lat, lon, accuracy) in enumerate(zip(moments, *(c.tolist() for c in columns[1:]), strict=True)):
        activity = ACTIVITY % f"{moment}Z" if i % 4 == 0 else ""
        entries.append(
            f'{{\n    "latitudeE7": {lat},\n    "longitudeE7": {lon},\n    "accuracy": {accuracy}{activity},\n'
            f'    "source": "WIFI",\n    "deviceTag": 1234567890,\n    "timestamp": "{moment}Z"\n  }}'
        )
    stream.write((", " if first else "") + ", ".join(entries))


def run_verbs(place: Path, records: Path) -> dict[str, dict[str, float]]:
    """Wall and processor seconds of each verb."""
    data, model, scores = (str(place / name) for name in ("data", "model", "scores"))
    verbs = {
        "extract": [str(records), "--out", data],
        "train": [data, "--preset", "quick", "--out", model],
        "score": [model, data, "--alerts-per-day", "1", "--out", scores],
        "report": [scores, "--out", str(place / "report.html")],
    }
    seconds = {}
    for verb, arguments in verbs.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "ustad", "-q", verb, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"ustad {verb}: {done.stderr}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds[verb] = {"wall": round(time.perf_counter() - began, 2), "processor": round(processor, 2)}
    return seconds


def measure(fixes: int, years: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ustad-takeout-") as folder:
        place = Path(folder)
        (place / "warm").mkdir()
        write_records(place / "warm" / "Records.json", 60_000, 0.25)
        run_verbs(place / "warm", place / "warm" / "Records.json")
        size = write_records(place / "Records.json", fixes, years)
        load = os.getloadavg()[0]
        verbs = run_verbs(place, place / "Records.json")
        stays = json.loads((place / "scores" / "run.json").read_text())
        total = {kind: round(sum(v[kind] for v in verbs.values()), 2) for kind in ("wall", "processor")}
        return {
            "fixes": fixes, "years": years, "megabytes": round(size / 1e6), "verbs": verbs, "total": total,
            "asked_s": ASKED_S, "report_megabytes": round((place / "report.html").stat().st_size / 1e6, 1),
            "alerts": stays["alerts"], "load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2),
            "cores": os.cpu_count(), "python": platform.python_version(),
            "peak_gb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6, 2),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixes", type=int, default=5_000_000)
    parser.add_argument("--years", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result = measure(options.fixes, options.years)
    print(json.dumps(result, indent=2))
    write_result(options.out, result)


if __name__ == "__main__":
    main()
