"""Which of our presets' figures were made by an earlier state of the code than others beside them.

In go result lines, out comes a sentence for the tables that hold them. Lines say by which state of the code they were
made (`result_files.code`); those from before that was noted are of an earlier one.
"""

from __future__ import annotations

from ustad.lab.evaluation.fitted_models import WHOLE_PRESETS
from ustad.lab.evaluation.gps import PRESET_METHODS
from ustad.lab.evaluation.result_files import Line

#: Methods whose scores change as the product does; the paper's and the baselines stay as published.
OURS = frozenset((WHOLE_PRESETS | PRESET_METHODS).keys() - {"ustad-paper"})


def say_older_code(lines: list[Line], names: dict[str, str]) -> str:
    """Our presets whose lines are not all of the latest state among them, each with its dates; empty where all are."""
    own = [x for x in lines if x.get("method") in OURS and "versions" in x]
    with_code = [x for x in own if "code" in x["versions"]]
    if not with_code:
        return ""
    latest = max(with_code, key=lambda x: str(x.get("date", "")))["versions"]["code"]
    older: dict[str, set[str]] = {}
    for line in own:
        if line["versions"].get("code") != latest:
            older.setdefault(line["method"], set()).add(str(line.get("date", "")))
    words = (f"{names[m]} ({' to '.join(sorted({min(days), max(days)}))})" for m, days in older.items())
    return f"Of our presets, made by earlier code than the others: {', '.join(words)}." if older else ""
