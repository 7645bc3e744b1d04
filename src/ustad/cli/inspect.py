"""What `ustad info` says of data: counts, span, split and quality, with small pictures for the terminal.

In: a data directory or file. Out: a dictionary a program can read (`describe`), or lines and bars (`show`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.shared import out

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 56


def describe(path: Path) -> dict[str, Any]:
    """Everything that `ustad info DATA` shows."""
    from ustad.dataset import load_directory
    from ustad.files import find_table, read_table
    from ustad.mobility.readers import open_data

    file = find_table(path, "stays") if path.is_dir() else None
    has_stays = file is None or read_table(file, columns=[]).num_rows > 0
    data = open_data(path, on_error="skip") if has_stays else load_directory(path)
    tables = {name: getattr(data, name) for name in ("trips", "gaps", "pois", "labels", "agent_labels", "quality")}
    has_quality = data.quality is not None and (has_stays or data.quality.num_rows > 0)
    return {
        "name": data.name,
        "path": str(path),
        "tables": {"stays": data.events.num_rows, **{n: t.num_rows for n, t in tables.items() if t is not None}},
        **(_describe_stays(data) if has_stays else _describe_none(data)),
        "quality": _quality(data) if has_quality else None,
        **_describe_ways(data.trips),
        "notes": data.meta.get("notes", []),
    }


def _describe_ways(trips: Any) -> dict[str, Any]:
    """Trips by mode, the median detour and the short stops of all; nothing without paths."""
    import pyarrow.compute as pc

    from ustad.mobility.ways import describe_ways

    if trips is None or not trips.num_rows or not {"path", "destination_stay_id"} <= set(trips.column_names):
        return {}
    ways = describe_ways(trips)
    modes = {one["values"] or "unknown": one["counts"] for one in ways["mode"].value_counts().to_pylist()}
    detour, stops = pc.approximate_median(ways["detour"]).as_py(), pc.sum(ways["short_stops"]).as_py()
    return {"ways": {"modes": modes, "median_detour": detour, "short_stops": stops or 0}}


def _describe_stays(data: Any) -> dict[str, Any]:
    import pyarrow.compute as pc

    from ustad.config import SplitConfig
    from ustad.tables import DataError

    stays = data.events
    minutes = pc.divide(pc.subtract(stays["finished_at"], stays["started_at"]).cast("int64"), 60_000_000)
    try:
        split = data.split(SplitConfig()).describe()
    except DataError as error:
        split = str(error)
    categories = sorted(stays["poi_category"].value_counts().to_pylist(), key=lambda e: -e["counts"])
    return {
        "agents": pc.count_distinct(stays["agent_id"]).as_py(),
        "span": [str(pc.min(stays["started_at"]).as_py()), str(pc.max(stays["finished_at"]).as_py())],
        "timezones": sorted(pc.unique(stays["timezone"]).to_pylist()),
        "split": split,
        "median_stay_minutes": pc.approximate_median(minutes).as_py(),
        "categories": {e["values"]: e["counts"] for e in categories},
    }


def _describe_none(data: Any) -> dict[str, Any]:
    """What a data directory without one stay has to tell instead."""
    return {
        "agents": data.quality.num_rows if data.quality is not None else 0,
        "span": data.meta.get("span") or ["", ""],
        "timezones": [data.meta["timezone"]] if data.meta.get("timezone") else [],
        "split": "none, because there is no stay; try a longer --gap, a larger --distance or fewer --minutes",
        "median_stay_minutes": None,
        "categories": {},
    }


def describe_record(path: Path) -> dict[str, Any] | None:
    """What the record in a directory says that is neither data nor the detector's model: a baseline's `method.json`
    or the `run.json` of scores. None where there is no such record."""
    from ustad.files import read_json

    for name, kind in (("method.json", "baseline"), ("run.json", "scores")):
        if (path / name).is_file():
            return {"kind": kind, "path": str(path), **read_json(path / name)}
    return None


def show_record(content: dict[str, Any]) -> None:
    """Single values, and of what is nested the single values in it."""
    from ustad.clock import iso_date

    for name, value in content.items():
        if name in ("first_day", "last_day") and isinstance(value, int):
            value = iso_date(value)
        if name == "schema" and isinstance(value, dict):
            value = value.get("name")
        if isinstance(value, dict):
            inner = {k: v for k, v in value.items() if not isinstance(v, (dict, list))}
            value = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in inner.items())
        if not isinstance(value, list) and value not in (None, ""):
            _line(name if len(name) < 11 else f"{name} ", str(value))


def _quality(data: Any) -> dict[str, Any]:
    import numpy as np
    import pyarrow.compute as pc

    from ustad.mobility.quality import coverage_by_day

    table = data.quality
    empty = data.gaps is None
    days, shares = (np.zeros(0), np.zeros(0)) if empty else coverage_by_day(table, data.gaps)
    coverage = table["coverage"].to_numpy()
    lengths = np.zeros(0) if empty else _gap_hours(data.gaps)
    edges = [0, 1, 2, 4, 8, 24, 72, np.inf]
    return {
        "fixes": pc.sum(table["n_fixes"]).as_py(),
        "median_interval_s": pc.approximate_median(table["median_interval_s"]).as_py(),
        "median_coverage": float(np.median(coverage)),
        "unfinished_last": pc.sum(table["unfinished_last"].cast("int64")).as_py(),
        "too_sparse": pc.sum(table["too_sparse"].cast("int64")).as_py(),
        "dropped": {n[2:]: pc.sum(table[n]).as_py() for n in ("n_duplicates", "n_spikes", "n_inaccurate")},
        "first_day": str(np.datetime64(int(days[0]), "D")) if len(days) else None,
        "coverage_by_day": [round(float(s), 4) for s in shares],
        "agents_by_coverage": np.histogram(coverage, np.linspace(0, 1, 11))[0].tolist(),
        "gaps_by_hours": np.histogram(lengths, edges)[0].tolist(),
        "gaps_by_cause": {} if empty else _gaps_by_cause(data.gaps, lengths),
        "observed_share": _observed_share(data.events),
    }


def _gaps_by_cause(gaps: Any, hours: Any) -> dict[str, dict[str, float]]:
    """How many gaps of each cause there are, and their hours."""
    if "cause" not in gaps.column_names:
        return {}
    causes = gaps["cause"].to_numpy(zero_copy_only=False)
    names = sorted({str(c) for c in causes if c is not None})
    return {c: {"gaps": int((causes == c).sum()), "hours": round(float(hours[causes == c].sum()), 1)} for c in names}


def _observed_share(stays: Any) -> float | None:
    """How much of the time in stays there were fixes for."""
    import pyarrow.compute as pc

    if "observed_s" not in stays.column_names or not stays.num_rows:
        return None
    lengths = pc.subtract(stays["finished_at"], stays["started_at"]).cast("int64").to_numpy() / 1e6
    return float(pc.sum(stays["observed_s"]).as_py() or 0.0) / max(float(lengths.sum()), 1.0)


def _gap_hours(gaps: Any) -> Any:
    import pyarrow.compute as pc

    return pc.subtract(gaps["finished_at"], gaps["started_at"]).cast("int64").to_numpy() / 3.6e9


def show(content: dict[str, Any]) -> None:
    """Lines and bars on the terminal."""
    _line("data", content["name"])
    _line("holds", ", ".join(f"{n:,} {name}" for name, n in content["tables"].items()))
    _line("agents", f"{content['agents']:,}")
    if content["span"][0]:
        _line("from", f"{content['span'][0][:16]} to {content['span'][1][:16]} UTC")
    _line("time zone", ", ".join(content["timezones"][:4]))
    _line("split", content["split"])
    _line("stay", f"{content['median_stay_minutes'] or 0:.0f} min (median)")
    total = sum(content["categories"].values())
    for name, count in list(content["categories"].items())[:8]:
        _line("", f"{name[:18]:<18} {bar(count / total, 24)} {count / total:6.1%}")
    if content["quality"] is not None:
        _show_quality(content["quality"])


def _show_quality(quality: dict[str, Any]) -> None:
    if quality["fixes"]:
        _line("fixes", f"{quality['fixes']:,}, every {quality['median_interval_s'] or 0:.0f} s (median)")
        drops = ", ".join(f"{n:,} {why}" for why, n in quality["dropped"].items() if n)
        _line("dropped", drops or "nothing")
        _line("unfinished", f"{quality['unfinished_last']:,} agents were still at their last stay")
        _line("too sparse", f"{quality['too_sparse']:,} agents cannot tell stays")
    else:
        _line("fixes", "none: the stays are those of the export")
    if quality["coverage_by_day"]:
        _line("coverage", f"{quality['median_coverage']:.1%} of an agent's time is observed (median)")
        _line("by day", f"{sparkline(quality['coverage_by_day'])} from {quality['first_day']}")
    causes = [quality["gaps_by_cause"].get(cause, {"gaps": 0, "hours": 0.0}) for cause in ("bridged", "left")]
    if any(part["gaps"] for part in causes):
        count, hours = sum(part["gaps"] for part in causes), sum(part["hours"] for part in causes)
        _line("bridged", f"{count:,} silences at one place are part of a stay, {hours:,.0f} h together")
    if quality["observed_share"] is not None:
        _line("observed", f"{quality['observed_share']:.1%} of the time in stays")
    agents = quality["agents_by_coverage"]
    _line("by agent", f"{sparkline([a / max(agents) for a in agents])} agents at 0 … 100 % coverage")
    gaps = quality["gaps_by_hours"]
    for label, count in zip(("1 h", "2 h", "4 h", "8 h", "24 h", "72 h", "longer"), gaps, strict=True):
        if count:
            _line("gaps" if label == "1 h" else "", f"up to {label:<6} {bar(count / max(gaps), 24)} {count:,}")


def _line(name: str, text: str) -> None:
    out.print(f"{name:<11}{text}", markup=False)


def bar(share: float, width: int) -> str:
    """A bar of blocks for a share in 0 … 1."""
    return ("█" * round(max(0.0, min(1.0, share)) * width)).ljust(width, "·")


def sparkline(shares: list[float]) -> str:
    """One character per value in 0 … 1; longer series are averaged down to the width."""
    import numpy as np

    parts = np.array_split(np.asarray(shares, float), min(len(shares), _WIDTH)) if shares else []
    return "".join(_BARS[round(float(np.clip(p.mean(), 0, 1)) * (len(_BARS) - 1))] for p in parts)
