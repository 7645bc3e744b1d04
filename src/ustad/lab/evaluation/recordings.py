"""Simulated people as a phone records them: stays extracted from its fixes, with the labels of the true stays.

In: what to simulate, and a phone. Out: a data directory like any extraction, whose `meta.json` says under `recording`
how good the extraction is and how many labelled true stays it missed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ustad.dataset import Dataset, load_directory
from ustad.files import write_json, write_table
from ustad.lab.evaluation.stay_matching import carry_labels, measure_extraction
from ustad.mobility.extraction import extract
from ustad.simulate import simulate

#: Not a recording: the stays as they were.
TRUE_STAYS = "true stays"
#: A fix a minute that arrives at once, as `ustad demo` records its town.
PLAIN = "fix a minute"
#: Within so many metres an extracted stay is at the place of the true one, by what the phone can know.
NEAR_M = {PLAIN: 250.0, "logger": 250.0, "phone": 250.0, "app": 500.0, "sparse": 4000.0}


def record_people(
    preset: str, out: Path, phone: str, agents: int | None, *, seed: int, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """Simulate people, record them, and extract their stays into `out`; returns what was measured of the extraction.

    `simulated`: further arguments of `simulate`. True stays and fixes are not kept.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=out.parent) as folder:
        town = Path(folder)
        how: dict[str, Any] = {"fixes": "60s"} if phone == PLAIN else {"phone": phone}
        simulate(preset, agents, seed, town, **how, **options)
        truth = load_directory(town)
        extract([town / "fixes"], out, pois=truth.pois, timezone=truth.meta["timezone"])
        return carry_truth(town, out, NEAR_M[phone])


def open_recording(
    preset: str, out: Path, phone: str, agents: int | None, *, seed: int, **options: Any
) -> Dataset:  # fmt: skip
    """Simulated people from their true stays or from a recording, made in `out`; arguments as in `record_people`."""
    if phone == TRUE_STAYS:
        simulate(preset, agents, seed, out, **options)
    else:
        record_people(preset, out, phone, agents, seed=seed, **options)
    return load_directory(out)


def carry_truth(town: Path, place: Path, near_m: float = 250.0, name: str | None = None) -> dict[str, Any]:
    """Write the labels and the split of the true stays into a directory of stays extracted from their fixes."""
    truth, data = load_directory(town), load_directory(place)
    figures = measure_extraction(truth.events, data.events, near_m)
    if truth.labels is not None:
        labels = carry_labels(truth.labels, truth.events, data.events, near_m)
        figures |= {"positives": labels.positives, "missed": labels.n_missed}
        write_table(labels.labels, place / "labels.parquet")
    write_table(truth.agent_labels, place / "agent_labels.parquet")
    meta = {**data.meta, "name": name or truth.meta["name"], "split": truth.meta["split"], "recording": figures}
    write_json(meta, place / "meta.json")
    return figures
