"""Tables of detection from GPS: what each phone keeps of the figures from true stays, and how good its stays are.

In: result lines of the experiment `gps` (or lines of the same form). Out: `Table`s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ustad.lab.evaluation.code_states import say_older_code
from ustad.lab.evaluation.gps import MOST_UNUSUAL
from ustad.lab.evaluation.plain_tables import Table, without_empty
from ustad.lab.evaluation.recordings import TRUE_STAYS
from ustad.lab.evaluation.result_tables import NAMES, Line, format_mean, select_lines, sets, slug

_MINUTE = 60.0
#: Methods as they are scored here; others are called what they are called everywhere.
ROW_NAMES = {**NAMES, "visit-rate": "visit rate by place, own score of each event"}
#: Where true stays are found hardly better than by chance, there is nothing that a recording could keep.
LEAST_TO_KEEP = 0.05
#: Events by their own score and by that of their incident, and agents.
GPS_LEVELS = ("events", "incidents", "agents")


def gps_tables(lines: list[Line]) -> list[Table]:
    """For each data set the detection from every recording, then the quality of the recordings' stays."""
    tables = [t for data in sets(lines) for t in (_detection_table(lines, data), _quality_table(lines, data))]
    return [without_empty(table) for table in tables if table.rows]


def _detection_table(lines: list[Line], data: str) -> Table:
    heads = ["method", "from", "seeds"]
    heads += [f"{level} {what}" for level in GPS_LEVELS for what in ("AUROC", "AUPR", "kept")]
    heads.append(f"true of the {MOST_UNUSUAL} most unusual")
    rows = []
    for method in dict.fromkeys(x["method"] for x in select_lines(lines, data=data)):
        truth = select_lines(lines, data=data, method=method, phone=TRUE_STAYS)
        for phone in dict.fromkeys(x["phone"] for x in select_lines(lines, data=data, method=method)):
            cell_lines = select_lines(lines, data=data, method=method, phone=phone)
            row = [ROW_NAMES.get(method, method), phone, str(len(cell_lines))]
            for level in GPS_LEVELS:
                row += [format_mean([_value(x, level, what) for x in cell_lines], 3) for what in ("auroc", "ap")]
                row.append("" if phone == TRUE_STAYS else describe_kept(kept_share(truth, cell_lines, level)))
            row.append(format_mean([x["result"].get("true_of_most_unusual") for x in cell_lines], 1))
            rows.append(tuple(row))
    note = (
        "incidents: events by the score of their incident; of visit rate, which names none, by the highest of an event "
        "and its two neighbours, as it is published. kept: mean AUROC − 0.5 and mean AUPR as shares of those of "
        f"the same people's true stays, where these are {LEAST_TO_KEEP:g} better than chance. "
        "Labelled true stays that a recording does not show count as found last. ± is over towns, one for each seed."
    )
    note += f" {say_older_code(select_lines(lines, data=data), NAMES)}"
    return Table(f"gps-{slug(data)}", f"Detection from GPS, {data}", tuple(heads), tuple(rows), note.strip())


def _value(line: Line, level: str, what: str) -> float | None:
    return line["result"].get(level, {}).get(what)


def kept_share(truth: list[Line], recording: list[Line], level: str) -> tuple[float, float] | None:
    """What a recording keeps of AUROC − 0.5 and of AUPR: means over the seeds that both have."""
    by_seed = {x["seed"]: x for x in truth}
    pairs = [
        (by_seed[x["seed"]], x) for x in recording if x["seed"] in by_seed and _value(x, level, "auroc") is not None
    ]
    pairs = [(a, b) for a, b in pairs if _value(a, level, "auroc") is not None]
    if not pairs:
        return None
    area = np.mean([[x["result"][level]["auroc"] - 0.5 for x in pair] for pair in pairs], axis=0)
    if area[0] < LEAST_TO_KEEP:
        return None
    precision = np.mean([[x["result"][level]["ap"] for x in pair] for pair in pairs], axis=0)
    return float(area[1] / area[0]), float(precision[1] / precision[0])


def describe_kept(share: tuple[float, float] | None) -> str:
    return "–" if share is None else f"{share[0]:.2f} / {share[1]:.2f}"


def _quality_table(lines: list[Line], data: str) -> Table:
    heads = ("phone", *(name for name, *_ in QUALITY))
    rows = []
    for phone in dict.fromkeys(x["phone"] for x in select_lines(lines, data=data)):
        own = [x for x in select_lines(lines, data=data, phone=phone) if x["result"]["recording"]]
        recordings = {x["seed"]: x["result"]["recording"] for x in own}  # once a town, not once a method
        if recordings:
            rows.append((phone, *quality_row(list(recordings.values()))))
    return Table(f"gps-stays-{slug(data)}", f"Stays extracted from GPS, {data}", heads, tuple(rows), QUALITY_NOTE)


#: Head, figure and what it is multiplied by and shown with.
QUALITY: tuple[tuple[str, str, float, int], ...] = (
    ("stays found %", "stays_found", 100.0, 1),
    ("pieces per stay", "pieces", 1.0, 3),
    ("spurious %", "spurious", 100.0, 1),
    ("places right %", "places_right", 100.0, 1),
    ("labelled stays found %", "positives_found", 100.0, 1),
    ("start error, min: median", "start_error_median_s", 1 / _MINUTE, 1),
    ("95 %", "start_error_95_s", 1 / _MINUTE, 1),
    ("95 % of starts seen", "start_seen_error_95_s", 1 / _MINUTE, 1),
    ("end error, min: median", "end_error_median_s", 1 / _MINUTE, 1),
    ("95 %", "end_error_95_s", 1 / _MINUTE, 1),
)
QUALITY_NOTE = (
    "A true stay is found where an extracted one that shares most of its time with it is at its place (within 250 m; "
    "500 m for `app`, 4 km for `sparse`). Places are right where the nearest POI is the true one. A start is seen "
    "where the last fix before it is at most ten minutes older."
)


def quality_row(recordings: list[dict[str, Any]]) -> list[str]:
    """Cells of QUALITY over some recordings."""
    rows = [{**m, "positives_found": 1 - m["missed"] / m["positives"]} if m.get("positives") else m for m in recordings]
    return [format_mean([_scale(m.get(key), scale) for m in rows], digits) for _, key, scale, digits in QUALITY]


def _scale(value: float | None, scale: float) -> float | None:
    return None if value is None else scale * value
