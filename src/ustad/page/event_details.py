"""One event opened: its features expected beside observed, its nearest known events, and the agent's habits.

In: an open connection, the schema, an event or an agent. Out: plain dictionaries for the page. At most
`HISTORY` events of an agent are looked at.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, select

from ustad.clock import DAY_NAMES, local_time
from ustad.geo import haversine_km
from ustad.kind_words import question_words
from ustad.page import records as r
from ustad.page.cases import cases_of
from ustad.page.company import company
from ustad.page.days_here import days_here
from ustad.page.queries import E, events_by_key, iso
from ustad.page.store import chunks
from ustad.page.stored_evidence import WHOLE_EVENT, stands_apart, unpack_evidence, unpack_facts
from ustad.page.translate import Layout
from ustad.schema import EventSchema, Feature
from ustad.scoring.evidence import SMALLEST_TAIL
from ustad.tables import TIMESTAMP
from ustad.ties import rounded

HISTORY = 5_000
PLACES = 40
VERDICTS = 20
#: What is shown of a feature beside questions that stand apart, and that nothing is said of known events.
EXPECTATION = ("expected", "observed", "error", "spread")
NO_NEIGHBOURS = {"distance": None, "pct": None, "share": 0.0}
#: An absence is shown from this p-value down, or where it is part of an incident.
RARE_ABSENCE = 0.01
DEGREES = 3  # decimals that make one place of events without a POI, about 100 m


@dataclass(frozen=True)
class History:
    """An agent's latest events, newest first: as rows, and local minute, weekday, duration and place as arrays."""

    rows: list[Any]
    columns: dict[str, np.ndarray]

    @classmethod
    def of(cls, connection: Connection, agent: str) -> History:
        query = select(r.events).where(E.agent == agent).order_by(E.started_at.desc()).limit(HISTORY)
        rows = list(connection.execute(query).mappings())
        return cls(rows, _columns(rows))

    def before(self, at: int) -> History:
        """What began earlier than the event at this place."""
        moment = self.rows[at]["started_at"]
        first = next((i for i in range(at, len(self.rows)) if self.rows[i]["started_at"] < moment), len(self.rows))
        return History(self.rows[first:], {name: values[first:] for name, values in self.columns.items()})

    def only(self, at: int) -> History:
        """That event alone."""
        return History(self.rows[at : at + 1], {name: values[at : at + 1] for name, values in self.columns.items()})


def event_detail(connection: Connection, schema: EventSchema, key: int) -> dict[str, Any] | None:
    """One event in detail; none where it is unknown."""
    row = connection.execute(select(r.events).where(E.key == key)).mappings().first()
    if row is None:
        return None
    history = History.of(connection, row["agent"])
    if all(other["key"] != key for other in history.rows):  # older than what is looked at
        history = History([row], _columns([row]))
    return event_details(connection, schema, [key], history)[key]


def event_details(
    connection: Connection, schema: EventSchema, keys: Sequence[int], history: History
) -> dict[int, dict[str, Any]]:
    """Events of one agent by key: the event, its evidence, habits at its hour and weekday, and the nearest known
    events. `known` is the agent's history, these events among it."""
    contents: dict[int, str] = {}
    for part in chunks(keys):
        contents |= {row.key: row.content for row in connection.execute(_DETAILS.where(r.details.c.key.in_(part)))}
    place, verdicts = {row["key"]: i for i, row in enumerate(history.rows)}, _verdicts(connection, keys)
    details = {}
    for event in events_by_key(connection, keys):
        key = int(event["id"])
        content, past, own = json.loads(contents.get(key, "{}")), history.before(place[key]), history.only(place[key])
        details[key] = {
            "event": event,
            **_evidence(schema, own.rows[0], content),
            "history_days": content.get("history_days"),
            "learned_score": content.get("learned_score"),
            "nearest": _nearest(own, past),
            "usually": _usually(own, past),
            "days": days_here(history.rows, history.columns, place[key]) if event["score"] is not None else None,
            "company": company(connection, own.rows[0]) if event["alert"] else None,
            "verdicts": verdicts[key],
            "cases": cases_of(connection, key),
        }
    return details


_DETAILS = select(r.details.c.key, r.details.c.content)


def _evidence(schema: EventSchema, row: Any, content: dict[str, Any]) -> dict[str, Any]:
    """What the score was made from, and nothing else. Questions about one feature stand with it: percentiles,
    uncertainties, shares. Where there are others, all stand in a list (`questions`), and features show expectations."""
    evidence, questions = unpack_evidence(content), Layout.of(schema).questions
    if stands_apart(evidence, questions):
        terms = {questions[one["name"]][0] for one in evidence if one["name"] in questions}
        features = [f for f in schema.features if _is_of_visits(f, schema) or terms & {t.name for t in f.terms()}]
        return {
            "features": _features(features, row, content, {}, only=EXPECTATION),
            "knn": NO_NEIGHBOURS,
            "questions": {"terms": _questions(evidence, schema), **_shown_facts(content)},
        }
    share = _shares(schema, evidence)
    knn = {"distance": content.get("knn"), "pct": content.get("pct_knn"), "share": share[WHOLE_EVENT]}
    return {"features": _features(schema.features, row, content, share), "knn": knn, "questions": None}


def _is_of_visits(feature: Feature, schema: EventSchema) -> bool:
    """When, how long, where, and what kind of place."""
    if feature.kind == "place" or feature.source in (("@minute_of_day",), ("@duration",)):
        return True
    return feature is next((f for f in schema.features if f.kind == "categorical" and f.columns), None)


# ----------------------------------------------------------------------------------------------- features
def _features(
    features: Sequence[Feature], row: Any, content: dict[str, Any], share: dict[str, float],
    *, only: tuple[str, ...] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Features expected beside observed; of what is stored of their terms only these parts, or all."""
    terms = content.get("terms", {})
    rows: list[dict[str, Any]] = []
    for feature in features:
        parts = [terms[t.name] for t in feature.terms() if t.name in terms]
        if only is not None:
            parts = [{name: part.get(name) for name in only} for part in parts]
        if parts:
            value = parts[0].get("observed") if feature.kind != "place" else None
            observed = value if value is not None else _observed(feature, row, content)
            answer = _feature(feature, parts, content)
            rows.append({**answer, "observed": observed, "share": share.get(feature.name, 0.0)})
    return rows


def _shares(schema: EventSchema, evidence: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Each feature's share of the score (a place: that of its two terms), and that of the event as a whole."""
    features = {t.name: t.feature for t in schema.terms()}
    share = dict.fromkeys((*features.values(), WHOLE_EVENT), 0.0)
    for one in evidence:
        share[features.get(one["name"], WHOLE_EVENT)] += one["share"]
    return share


def _feature(feature: Feature, parts: list[dict[str, Any]], content: dict[str, Any]) -> dict[str, Any]:
    """One feature of one or (a place) two terms: the larger percentile, the sum of the losses."""
    pct = max((p["pct"] for p in parts if p.get("pct") is not None), default=None)
    answer: dict[str, Any] = {
        "name": feature.name, "label": feature.label, "display": feature.display, "unit": feature.unit,
        "kind": feature.kind, "scored": feature.scored, "pct": pct, "surprise": _surprise(pct),
        "period": feature.period or None,
    }  # fmt: skip
    for name in ("loss", "au", "eu"):
        values = [p[name] for p in parts if p.get(name) is not None]
        answer[name] = sum(values) if values else None
    if feature.kind == "place":
        errors: list[Any] = [p.get("error") for p in parts]
        spreads: list[Any] = [p.get("spread") for p in parts]
        answer["expected"] = {"lat": content.get("expected_lat"), "lon": content.get("expected_lon")}
        answer["error"] = math.hypot(*errors) if all(v is not None for v in errors) else None
        answer["spread"] = spreads if all(v is not None for v in spreads) else None
    else:
        answer |= {name: parts[0].get(name) for name in ("expected", "error", "spread")}
    return answer


def _questions(evidence: Sequence[dict[str, Any]], schema: EventSchema) -> list[dict[str, Any]]:
    """Each question in words, with how rare the answer is and its share; the largest share first. A question about a
    feature is called as the schema calls that."""
    labels = {name: f.label for f in schema.features for name in (f"own_{f.name}", f.name)}
    order = sorted(evidence, key=lambda one: (-rounded(one["share"]), -rounded(one["surprise"])))
    return [
        {
            "name": one["name"],
            "label": labels.get(one["name"]) or question_words(one["name"]),
            "surprise": one["surprise"],
            "share": one["share"],
        }
        for one in order
    ]


def _shown_facts(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in unpack_facts(content).items() if name != "at_home"}


def _surprise(pct: float | None) -> float:
    """−log10 of the share of usual events that are at least as far out."""
    return 0.0 if pct is None else -math.log10(min(max(1.0 - pct, SMALLEST_TAIL), 1.0))


def _observed(feature: Feature, row: Any, content: dict[str, Any]) -> Any:
    if feature.kind == "place":
        return {"lat": row["lat"], "lon": row["lon"]}
    if feature.kind == "vector":
        return None
    source = feature.source[0]
    if not source.startswith("@"):
        return row["category"] if feature.kind == "categorical" else content.get("given", {}).get(source)
    clock = local_time(pa.array([row["started_at"]], pa.int64()).cast(TIMESTAMP), row["timezone"])
    values = {
        "@minute_of_day": float(clock.minute[0]), "@weekday": DAY_NAMES[int(clock.weekday[0])],
        "@month": int(clock.month[0]), "@duration": (row["finished_at"] - row["started_at"]) / 60e6,
    }  # fmt: skip
    return values.get(source)


# ------------------------------------------------------------------------------------------ what is usual
def _columns(events: list[Any]) -> dict[str, np.ndarray]:
    """Local day, minute and weekday, duration and place of events, as arrays."""
    start = np.array([e["started_at"] for e in events], np.int64)
    zones = pa.array([e["timezone"] for e in events], pa.string())
    clock = local_time(pa.array(start).cast(TIMESTAMP), zones)
    numbers = {n: np.array([np.nan if e[n] is None else e[n] for e in events], float) for n in ("lat", "lon")}
    minutes = (np.array([e["finished_at"] for e in events], np.int64) - start) / 60e6
    days = {"day": clock.day.astype(np.int64), "weekday": clock.weekday.astype(np.int64)}
    return {"minute": clock.minute, **days, "duration": minutes, **numbers}


def _nearest(own: History, past: History, most: int = 3) -> list[dict[str, Any]]:
    """The agent's earlier events nearest in place (km), start (hours) and duration (hours, logarithmic)."""
    if not past.rows:
        return []
    one, all_, rows = own.columns, past.columns, past.rows
    apart = np.abs(all_["minute"] - one["minute"])
    hours = np.minimum(apart, 1440 - apart) / 60
    longer = np.abs(np.log1p(all_["duration"] / 60) - np.log1p(one["duration"] / 60))
    km = haversine_km(one["lat"], one["lon"], all_["lat"], all_["lon"])
    order = np.argsort(np.nan_to_num(km, nan=0.0) + hours + 2 * longer, kind="stable")[:most]
    return [
        {
            "id": str(rows[i]["key"]), "started_at": iso(rows[i]["started_at"]), "timezone": rows[i]["timezone"],
            "finished_at": iso(rows[i]["finished_at"]), "category": rows[i]["category"],
            "place_name": rows[i]["place_name"],
            "km": None if math.isnan(km[i]) else round(float(km[i]), 2), "hours": round(float(hours[i]), 1),
        }
        for i in order
    ]  # fmt: skip


def _usually(own: History, past: History) -> dict[str, Any]:
    """What the agent did on earlier days of the same weekday at the hour this event began, by category."""
    if not past.rows:
        return {"weekday": None, "minute": None, "days": 0, "what": []}
    one, all_ = own.columns, past.columns
    minute, weekday = float(one["minute"][0]), int(one["weekday"][0])
    since = minute - all_["minute"] + 1440 * ((weekday - all_["weekday"]) % 7)
    covers = (since >= 0) & (since < all_["duration"])
    counts = Counter(past.rows[i]["category"] or "unknown" for i in np.flatnonzero(covers))
    days = int(covers.sum())
    what = [{"category": name, "days": n, "share": n / days} for name, n in counts.most_common(5)]
    return {"weekday": DAY_NAMES[weekday], "minute": minute, "days": days, "what": what}


def _verdicts(connection: Connection, keys: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """What was said of each event, the latest first."""
    by_key: dict[int, list[dict[str, Any]]] = {key: [] for key in keys}
    query = select(r.verdicts).order_by(r.verdicts.c.id.desc())
    for part in chunks(keys):
        for v in connection.execute(query.where(r.verdicts.c.key.in_(part))):
            by_key[v.key].append({
                "verdict": v.verdict, "reason": v.reason, "note": v.note, "by": v.given_by, "at": iso(v.given_at),
                "until": iso(v.expires_at) if v.expires_at is not None else None,
            })  # fmt: skip
    return {key: verdicts[:VERDICTS] for key, verdicts in by_key.items()}


def usual_places(history: History) -> list[dict[str, Any]]:
    """The agent's places by visits: where, how often, how long, mostly as what."""
    groups: dict[Any, list[Any]] = {}
    for event in history.rows:
        if event["lat"] is not None and event["lon"] is not None:
            spot = (round(event["lat"], DEGREES), round(event["lon"], DEGREES))
            groups.setdefault(event["poi_id"] or spot, []).append(event)
    places = []
    for visits in groups.values():
        categories = Counter(v["category"] or "unknown" for v in visits)
        names = Counter(v["place_name"] for v in visits if v["place_name"])
        places.append({
            "lat": float(np.mean([v["lat"] for v in visits])), "lon": float(np.mean([v["lon"] for v in visits])),
            "visits": len(visits), "category": categories.most_common(1)[0][0],
            "name": names.most_common(1)[0][0] if names else None,
            "hours": round(sum(v["finished_at"] - v["started_at"] for v in visits) / 3.6e9, 1),
        })  # fmt: skip
    return sorted(places, key=lambda p: -p["visits"])[:PLACES]


def absences(connection: Connection, agent: str, first: int, last: int, *, limit: int) -> list[dict[str, Any]]:
    """Nearly certain visits between `first` and `last` that did not come, in order of time. Shown are those that are
    rare among normal people, and those whose place an incident's event took."""
    a = r.absences.c
    query = (
        select(r.absences, E.key, E.incident)
        .outerjoin(r.events, (E.agent == a.agent) & (E.started_at == a.instead))
        .where(a.agent == agent, a.started_at < last, a.finished_at >= first)
        .where((a.p_value <= RARE_ABSENCE) | E.incident.is_not(None))
    )
    rows = connection.execute(query.order_by(a.started_at.desc()).limit(limit)).mappings().all()
    return [
        {"started_at": iso(row["started_at"]), "finished_at": iso(row["finished_at"]), "category": row["category"],
         "p_value": row["p_value"], "reason": row["reason"], "incident_id": row["incident"],
         "instead": None if row["key"] is None else str(row["key"])}
        for row in reversed(rows)
    ]  # fmt: skip


def movements(connection: Connection, agent: str, first: int, last: int, *, limit: int) -> dict[str, Any]:
    """Trips, gaps and absences that touch [first, last), in order of time; of more than `limit` the latest."""
    answer: dict[str, Any] = {}
    for name, table in (("trips", r.trips), ("gaps", r.gaps)):
        query = select(table).where(table.c.agent == agent, table.c.started_at < last, table.c.finished_at >= first)
        rows = connection.execute(query.order_by(table.c.started_at.desc()).limit(limit)).mappings().all()
        answer[name] = [
            {"started_at": iso(row["started_at"]), "finished_at": iso(row["finished_at"]),
             **({"path": json.loads(row["path"])} if name == "trips" else {})}
            for row in reversed(rows)
        ]  # fmt: skip
    answer["absences"] = absences(connection, agent, first, last, limit=limit)
    return answer
