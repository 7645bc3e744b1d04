"""Evidence as the store keeps it of an event: what each question said and its share of the score, whoever was asked.

In goes the evidence of a score table; out comes a part of the event's detail, and evidence again of a detail, also of
one that an older version wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ustad.scoring.evidence import read_evidence

#: Plain facts → the question that they are behind, what of its answer they are, and how to read it.
_BEHIND: dict[str, tuple[str, str, Callable[[float], Any]]] = {
    "visits_now": ("recurrence", "observed", round),
    "km_from_own_places": ("distance", "observed", float),
    "new_place": ("recurrence", "expected", lambda before: before == 0),
}
#: Columns with these facts, where details of an event are kept.
FACTS = (*_BEHIND, "at_home")
#: The question about an event as a whole: how far the nearest known ones are.
WHOLE_EVENT = "knn"


def pack_evidence(evidence: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]) -> dict[str, Any]:
    """For a detail: question → surprise and share, the largest share first, and the facts that are known, from the
    `columns` that measured them or else from the answers."""
    answers = {one["name"]: one for one in evidence}
    facts = {"at_home": columns.get("at_home")}
    for name, (question, what, read) in _BEHIND.items():
        value = answers.get(question, {}).get(what)
        facts[name] = columns[name] if columns.get(name) is not None else None if value is None else read(value)
    return {
        "evidence": {name: [one["surprise"], one["share"]] for name, one in answers.items()},
        "facts": {name: value for name, value in facts.items() if value is not None},
    }


def unpack_evidence(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The evidence in a detail: `name`, `surprise` and `share` of each question."""
    if "evidence" in content:
        return [{"name": n, "surprise": both[0], "share": both[1]} for n, both in content["evidence"].items()]
    older = content.get("habits", {})
    groups = {f"{what}_{name}": v for what in ("surprise", "share") for name, v in (older.get(what) or {}).items()}
    ranks = {f"pct_{name}": of.get("pct") for name, of in content.get("terms", {}).items() if "pct" in of}
    return read_evidence({**ranks, f"pct_{WHOLE_EVENT}": content.get(f"pct_{WHOLE_EVENT}"), **groups})


def unpack_facts(content: Mapping[str, Any]) -> dict[str, Any]:
    """The plain facts in a detail, None where they are not known."""
    facts = content.get("facts", content.get("habits", {}))
    return {name: facts.get(name) for name in FACTS}


def stands_apart(evidence: Iterable[Mapping[str, Any]], of_features: Iterable[str]) -> bool:
    """Whether questions are shown in a list of their own. That is where one of them is neither about a single feature
    (`of_features`) nor about the event as a whole: so all shares stand in one place and add up."""
    shown_elsewhere = {*of_features, WHOLE_EVENT}
    return any(one["name"] not in shown_elsewhere for one in evidence)
