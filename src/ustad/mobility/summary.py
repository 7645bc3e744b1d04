"""What an extraction read, found and dropped: counted part by part, added up in one summary, told in `meta.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ustad import __version__
from ustad.mobility.fix_store import Partition
from ustad.progress import say

if TYPE_CHECKING:
    from ustad.mobility.extraction import Setting

FROM_SOURCE = ("split", "seed")  # what a source directory's meta.json says of the result too


@dataclass
class ExtractionSummary:
    """What an extraction read, found and dropped."""

    out: Path
    files: int = 0
    agents: int = 0
    fixes: int = 0  # rows read and valid
    stays: int = 0
    trips: int = 0
    gaps: int = 0
    unfinished: int = 0  # agents whose last stay was still going on
    too_sparse: int = 0  # agents whose fixes are too far apart to tell stays
    dropped: dict[str, int] = field(default_factory=dict)  # rows, by why
    notes: list[str] = field(default_factory=list)  # mapped, guessed, dropped
    span: tuple[str, str] | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class PartCount:
    """What one partition adds to the summary."""

    agents: int
    counts: dict[str, int]
    dropped: dict[str, int]
    first: int | None
    last: int | None


def count_partition(part: Partition, tables: dict[str, pa.Table]) -> PartCount:
    """What a partition and its tables add to the summary."""
    quality = tables["quality"]
    counts = {name: tables[name].num_rows for name in ("stays", "trips", "gaps")}
    for name, column in (("unfinished", "unfinished_last"), ("too_sparse", "too_sparse")):
        counts[name] = int(np.count_nonzero(quality[column].to_numpy()))
    drops = {why: int(quality[f"n_{why}"].to_numpy().sum()) for why in ("duplicates", "spikes", "inaccurate")}
    times = part.fixes.time
    ends = (int(times.min()), int(times.max())) if len(times) else (None, None)
    return PartCount(len(part.agents), counts, drops, *ends)


def add_count(summary: ExtractionSummary, part: PartCount) -> None:
    for name, count in part.counts.items():
        setattr(summary, name, getattr(summary, name) + count)
    for why, count in part.dropped.items():
        add_dropped(summary, why, count)
    ends = [iso_time(t) for t in (part.first, part.last) if t is not None] + list(summary.span or ())
    summary.span = (min(ends), max(ends)) if ends else None


def add_dropped(summary: ExtractionSummary, why: str, count: int) -> None:
    if count:
        summary.dropped[why] = summary.dropped.get(why, 0) + count


def iso_time(microseconds: int) -> str:
    return f"{np.datetime64(microseconds, 'us').astype('datetime64[s]')}+00:00"


def describe(summary: ExtractionSummary, setting: Setting, source_meta: dict[str, Any]) -> dict[str, Any]:
    """What `meta.json` says: settings, counts and notes, no data."""
    if not summary.stays:
        summary.notes.append(
            "no stay was found; see the quality table, and try a longer gap limit or a larger distance"
        )
    counts = ("files", "agents", "fixes", "stays", "trips", "gaps", "unfinished", "too_sparse")
    say(f"{summary.stays:,} stays of {summary.agents:,} agents")
    meta: dict[str, Any] = {
        "name": source_meta.get("name", summary.out.name),
        "made_by": f"ustad extract {__version__}",
        "extraction": asdict(setting.config),
        "timezone": setting.timezone,
        "places": "own" if setting.pois is None else "pois",
        "span": list(summary.span or ()),
        "counts": {name: getattr(summary, name) for name in counts},
        "dropped": summary.dropped,
        "notes": summary.notes,
    }
    meta.update((key, source_meta[key]) for key in FROM_SOURCE if key in source_meta)
    return meta
