"""Which figures were made by an earlier state of the code than others beside them.

In go result lines, out comes a sentence for the tables that hold them. Lines say by which state of the code they were
made (`result_files.code`) and on which day; those from before that was noted are of an earlier one. Of two states of
one day nothing tells which came first.
"""

from __future__ import annotations

from ustad.lab.evaluation.fitted_models import TRIPS, WHOLE_PRESETS
from ustad.lab.evaluation.gps import PRESET_METHODS
from ustad.lab.evaluation.result_files import Line
from ustad.lab.evaluation.stopping import is_undated

#: Methods whose scores change as the product does; the paper's and the baselines stay as published.
OURS = frozenset((WHOLE_PRESETS | PRESET_METHODS).keys() - {"ustad-paper"})


def say_older_code(lines: list[Line], names: dict[str, str]) -> str:
    """Our presets whose lines are not all of the latest state among them, each with its dates; empty where all are."""
    own = [x for x in lines if x.get("method") in OURS and "versions" in x]
    with_code = [x for x in own if "code" in x["versions"]]
    if not with_code:
        return ""
    last_day = max(_day(x) for x in with_code)
    latest = {x["versions"]["code"] for x in with_code if _day(x) == last_day}
    if len(latest) > 1:
        return f"Our presets were made by several states of the code: {_say_days(own, names)}."
    older = [x for x in own if x["versions"].get("code") not in latest]
    return f"Of our presets, made by earlier code than the others: {_say_days(older, names)}." if older else ""


def say_one_draw(lines: list[Line]) -> str:
    """That scores of USTAD-AU are of older code, which drew the noise on its logits once: losses of its kinds of place
    and weekdays were noisy by that. Cells of that code do not say by which they were made."""
    own = [x for x in lines if x.get("method") == "ustad-au" and is_undated(x)]
    return "USTAD-AU is of older code: one draw of noise on the logits of categories in place of 50." if own else ""


def score_trips(lines: list[Line]) -> bool:
    """Whether USTAD with trips is of older code here, which scored the two vectors of a trip; the preset has them as
    inputs alone."""
    return any(x.get("method") == TRIPS and is_undated(x) for x in lines)


def _say_days(lines: list[Line], names: dict[str, str]) -> str:
    """Methods with the first and the last day of their lines."""
    days: dict[str, set[str]] = {}
    for line in lines:
        days.setdefault(line["method"], set()).add(_day(line))
    return ", ".join(f"{names[m]} ({' to '.join(sorted({min(own), max(own)}))})" for m, own in days.items())


def _day(line: Line) -> str:
    return str(line.get("date", ""))
