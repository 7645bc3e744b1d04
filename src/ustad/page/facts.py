"""What is said of a run as a whole: the alert rule, notes, figures, uncertainty, calibration, data quality, the card.

In: the tables of a run. Out: one dictionary for the page's view of the run.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ustad.page.card_blocks import card_blocks
from ustad.page.quality_rows import quality_rows
from ustad.page.run_scores import RunScores, read_run_scores
from ustad.page.run_tables import RunTables
from ustad.page.score_columns import category_column
from ustad.page.uncertainty import calibration, scatter
from ustad.schema import plural
from ustad.scoring.alerts import LeastRate

RULES = {
    "alerts_per_day": "the {:g} most unusual a day",
    "fdr": "at most {:.0%} false alarms",
    "top": "the first {:g}",
}
#: Asked for so many alerts a day, this factor more or fewer is worth a sentence.
OFF = 1.5
MOST_CATEGORIES = 10
#: Groups of people that are shown.
MOST_GROUPS = 20
RUN_FACTS = ("method", "data", "model", "split", "preset", "seed", "version", "created")
PLACES = ("data", "model")


def run_facts(run: RunTables, run_scores: RunScores | None = None) -> dict[str, Any]:
    """Everything the view of the run shows, ready for JSON."""
    run_scores = run_scores or read_run_scores(run)
    return {
        "rule": rule_in_words(run.run),
        "notes": notes(run_scores, run.run),
        "rate": rate_of(run.run),
        "chance_share": chance_share(run.run),
        "figures": figures(run.run),
        "groups": groups(run.run),
        "together": together(run),
        "scatter": scatter(run, run_scores),
        "calibration": calibration(run_scores),
        "categories": categories(run),
        "days": run.run.get("calendar") or {},
        "drift": run.run.get("drift"),
        "quality": quality_rows(run),
        "card": card_blocks(run.card) if run.card else [],
        "facts": [[key, _text(key, run.run[key])] for key in RUN_FACTS if run.run.get(key) not in (None, "", {}, [])],
    }


#: The same of a service that shows no finished run.
NO_FACTS: dict[str, Any] = {
    "rule": "", "notes": [], "rate": None, "chance_share": None, "figures": [], "groups": [], "together": [],
    "scatter": None, "calibration": None, "categories": [], "days": {}, "drift": None, "quality": [], "card": [],
    "facts": [],
}  # fmt: skip


def categories(run: RunTables) -> list[str]:
    """The categories that have a colour of their own, the most frequent first."""
    name = category_column(run.schema)
    if name is None or name not in run.events.schema.names:
        return []
    counts = pc.value_counts(run.events.to_table(columns=[name])[name].cast("string")).to_pylist()
    pairs = [(-part["counts"], part["values"]) for part in counts if part["values"] is not None]
    return [word for _, word in sorted(pairs)[:MOST_CATEGORIES]]


def _text(key: str, value: Any) -> str:
    """A fact as it is shown; of a file the last two names, because a report is given to others."""
    if key in PLACES:
        return "/".join(PurePath(str(value)).parts[-2:])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -------------------------------------------------------------------------------------------------- notes
def notes(run_scores: RunScores, run: dict[str, Any]) -> list[str]:
    """What a reader should know before the numbers, one sentence or two each."""
    texts = [*_why_none(run_scores, run), *_asked_and_got(run_scores, run), *_by_chance(run_scores, run)]
    texts += [in_plain_words(str(warning)) for warning in run.get("warnings") or []]
    return [text[:1].upper() + text[1:] for text in texts]


def _asked_and_got(run_scores: RunScores, run: dict[str, Any]) -> list[str]:
    value, per_day = run.get("value"), int(run_scores.alert.sum()) / run_scores.days
    if run.get("rule") != "alerts_per_day" or not isinstance(value, (int, float)) or not per_day:
        return []
    if max(value / per_day, per_day / value) < OFF:
        return []
    return [f"Asked for {value:g} alerts a day, got {per_day:.2g}."]


def _by_chance(run_scores: RunScores, run: dict[str, Any]) -> list[str]:
    """Where the p-values say that chance alone would give more than there is, and scoring has not said so itself."""
    if "by_chance" in run or not run_scores.alert.any():
        return []
    count, chance = int(run_scores.alert.sum()), float(run_scores.p[run_scores.alert].max()) * len(run_scores.p)
    if chance <= count:
        return []
    events = plural(run_scores.schema.event_word)
    return [
        f"By the p-values about {chance:.3g} {events} as unusual as the mildest alert would be expected if nothing "
        f"unusual had happened, and there are {count}: any of them may be a false alarm. Trust the order of the alerts "
        "more than their p-values."
    ]


def rule_in_words(run: dict[str, Any]) -> str:
    """The alert rule as people say it; empty where the run names none."""
    rule, value, threshold = run.get("rule"), run.get("value"), run.get("threshold")
    parts = []
    if rule in RULES and isinstance(value, (int, float)):
        parts.append(RULES[rule].format(value))
    elif rule and rule != "p_value":
        parts.append(str(rule))
    if isinstance(threshold, (int, float)) and threshold > 0:
        parts.append(f"p ≤ {threshold:.2g}")
    return ", ".join(parts)


def chance_share(run: dict[str, Any]) -> float | None:
    """How many alerts normal behaviour alone would raise for each that there is, as scoring said."""
    alerts, by_chance = run.get("alerts"), run.get("by_chance")
    return by_chance / alerts if alerts and by_chance is not None else None


def rate_of(run: dict[str, Any]) -> dict[str, Any] | None:
    """The fewest alerts a day that can be told apart, and what to say to who asks for fewer."""
    reference, per_day = run.get("reference_events"), run.get("least_per_day")
    return describe_rate(LeastRate(reference, per_day)) if reference and per_day else None


def describe_rate(least: LeastRate) -> dict[str, Any]:
    return {"least_per_day": least.per_day, "words": least.words()[:1].upper() + least.words()[1:] + "."}


_SMALL = re.compile(
    r"p ≤ (?P<p>[\d.e-]+), rarer than one in the (?P<n>[\d,]+) reference events"
    r"(?:; the threshold rests on the fitted tail alone(?:; (?P<can>.*))?)?"
)


def in_plain_words(warning: str) -> str:
    """What a warning of scoring means for a reader; those that need no translation as they are."""
    small = _SMALL.search(warning)
    if small is None:
        return warning
    return (
        f"the model had only {small['n']} usual events to compare with, and an alert here is to be rarer than 1 in "
        f"{round(1 / float(small['p'])):,}: trust the order of the alerts, not their exact p-values, and expect more "
        f"or fewer false alarms than the figures say; {small['can'] or 'longer or more training data makes this sure'}"
    )


def _why_none(run_scores: RunScores, run: dict[str, Any]) -> list[str]:
    """Why there is no alert, and what to do about it; nothing where there are some."""
    if run_scores.alert.any():
        return []
    best = run_scores.p[run_scores.by_surprise[0]]
    rule = rule_in_words(run)
    return [
        f"No {run_scores.schema.event_word} passed the alert rule{f' ({rule})' if rule else ''}. "
        f"The most unusual one has p = {best:.2g} among {len(run_scores.p):,}. The slider lists the most unusual ones "
        "all the same; to be alerted more often, score again with a higher --alerts-per-day, a larger --fdr or --top."
    ]


def figures(run: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a method: AUROC and average precision of events and agents; empty where there were no labels."""
    methods = {str(run.get("method") or "this model"): run.get("evaluation"), **(run.get("baselines") or {})}
    rows = []
    for name, result in methods.items():
        if not isinstance(result, dict):
            continue
        row: dict[str, Any] = {"method": name}
        for level in ("events", "agents"):
            of_level = result.get(level) or {}
            interval = of_level.get("interval_95") or {}
            row[level] = {
                "auroc": _finite(of_level.get("auroc")),
                "ap": _finite(of_level.get("ap")),
                "auroc_range": [_finite(v) for v in interval.get("auroc", [])],
                "ap_range": [_finite(v) for v in interval.get("ap", [])],
                "positives": of_level.get("positives"),
                "n": of_level.get("n"),
                "reason": of_level.get("reason", ""),
            }
        rows.append(row)
    return rows


def groups(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Recurring, non-recurring and each kind of labelled anomaly apart, for the method of the run."""
    rows = []
    for level in ("events", "agents"):
        of_level = (run.get("evaluation") or {}).get(level) or {}
        for column, values in (of_level.get("by") or {}).items():
            if level == "agents" and column == "role":  # an agent has events of every role
                continue
            for value, row in values.items():
                pair = {"auroc": _finite(row.get("auroc")), "ap": _finite(row.get("ap"))}
                rows.append({"level": level, "by": column, "value": value, "n": row.get("positives"), **pair})
    return rows


def together(run: RunTables) -> list[dict[str, Any]]:
    """Several people at one place and time, the rarest first."""
    return [] if run.groups is None else shown_groups(run.groups)


def shown_groups(groups: pa.Table) -> list[dict[str, Any]]:
    """Of the first groups a sentence, who, how rare, and when it had ended (microseconds)."""
    rows = groups.select(["agent_ids", "p_value", "reason", "finished_at"]).slice(0, MOST_GROUPS)
    moments = rows["finished_at"].cast(pa.int64())
    return rows.set_column(rows.column_names.index("finished_at"), "finished_at", moments).to_pylist()


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value == value else None
