"""The answers of the service about a finished run, by address, for a page without a service.

In: the tables of a run. Out: answers that concern everybody, and each open agent's apart. They are made by `queries`
and `event_details` from a store in memory, so that a report and the service say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, select

from ustad import __version__, progress
from ustad.clock import iso_date
from ustad.page import queries
from ustad.page import records as r
from ustad.page.event_details import History, event_detail, event_details, movements, usual_places
from ustad.page.facts import run_facts
from ustad.page.ground import Ground, box_around
from ustad.page.queries import Filter
from ustad.page.run_scores import RunScores, agents_by_events, agents_by_score, read_run_scores
from ustad.page.run_tables import RunTables, rows_of
from ustad.page.runs import add_absences, add_movements, add_table, set_agents, without_scored
from ustad.page.store import Store
from ustad.page.translate import Layout, keys_of
from ustad.schema import EventSchema

#: Events of one agent: shown at all, and with everything behind their scores.
MOST_EVENTS, MOST_DETAILS = 1_000, 15
MOST_MOVES = 1_000
DIGITS = 7  # of a number: a metre on the map
SCORES = ("score", "p_value", "kind", "reason", "alert", "final")
PLAIN_SIGNS = "!'()*~"  # as encodeURIComponent


@dataclass(frozen=True)
class FrozenRun:
    """Answers by address; `agents`: name → the answers about one agent and its events."""

    answers: dict[str, Any]
    agents: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Choice:
    """What goes into the file: agent codes, and rows of the score table."""

    in_full: np.ndarray  # agents in full
    beside: np.ndarray  # agents that have a lane, or the first or last event of the run
    lines: np.ndarray  # events with a line: all alerts, and the most unusual ones as far as everybody there opens
    with_details: np.ndarray  # events with everything behind their scores: those with a line, the top of each agent
    listed_above: float  # every event above this score has a line


def freeze(
    run: RunTables, *, cases: int, lanes: int, alerts: int, title: str | None = None, ground: Ground | None = None
) -> FrozenRun:
    """All answers. Memory is that of the few columns that every event is asked for, and of the agents on show."""
    run_scores = read_run_scores(run)
    choice = choose(run, run_scores, cases, lanes, alerts=alerts)
    store = Store("sqlite://")
    try:
        keys = _import(store, run, run_scores, choice)
        with store.reading() as connection:
            answers = short(_for_all(connection, run, run_scores, choice, lanes=lanes, title=title))
            if ground is not None and answers["/v1/about"]["has_place"]:
                answers["/v1/ground"] = _ground(connection, ground)
            agents = {}
            with progress.track("report: cases", len(keys)) as advance:
                for name, behind in keys.items():
                    agents[name] = _of_agent(connection, run.schema, name, behind)
                    advance()
    finally:
        store.close()
    return FrozenRun(answers, agents)


def choose(run: RunTables, run_scores: RunScores, cases: int, lanes: int, *, alerts: int) -> Choice:
    """Everybody with an alert, and then the most unusual agents up to `cases`; of events without an alert the first
    `alerts`, until one of somebody who is not in the file: what is listed opens."""
    rows, is_alert = run_scores.by_surprise, run_scores.alert[run_scores.by_surprise]
    with_alert = _first_seen(run_scores.codes[rows[is_alert]])
    others = _others(run, run_scores, with_alert)
    in_full = np.concatenate([with_alert, others[: max(0, cases - len(with_alert))]])
    ends = run_scores.codes[[int(run_scores.day.argmin()), int(run_scores.day.argmax())]]
    beside = np.setdiff1d(np.concatenate([agents_by_events(run_scores)[:lanes], ends]), in_full)
    most = max(alerts, int(np.flatnonzero(is_alert).max(initial=-1)) + 1)
    absent = np.flatnonzero(~np.isin(run_scores.codes[rows], in_full))
    end = min([most, *absent[:1].tolist()])
    lines = np.union1d(rows[:end], rows[is_alert])
    above = float(run_scores.score[rows[end]]) if end < len(rows) else -np.inf
    with_details = np.union1d(_with_their_incidents(run, lines), _most_unusual(run_scores, in_full))
    return Choice(in_full, beside, lines, with_details, above)


def _with_their_incidents(run: RunTables, rows: np.ndarray) -> np.ndarray:
    """Rows of events with all that belong to their incidents: an alert may open the stay that explains it."""
    if "incident_id" not in run.events.schema.names:
        return rows
    incidents = run.events.to_table(columns=["incident_id"])["incident_id"].combine_chunks()
    belongs = pc.and_(pc.is_valid(incidents), pc.is_in(incidents, incidents.take(pa.array(rows))))
    return np.union1d(rows, np.flatnonzero(belongs.to_numpy(zero_copy_only=False)))


def _others(run: RunTables, run_scores: RunScores, with_alert: np.ndarray) -> np.ndarray:
    """Agents without an alert, by their events and by their own scores in turn: those the list comes to next, and those
    who stand out without a striking event."""
    by_event, by_score = (
        order[~np.isin(order, with_alert)] for order in (agents_by_events(run_scores), agents_by_score(run, run_scores))
    )
    turns = np.concatenate([2 * np.arange(len(by_event)), 2 * np.arange(len(by_score)) + 1])
    return _first_seen(np.concatenate([by_event, by_score])[np.argsort(turns)])


def _most_unusual(run_scores: RunScores, in_full: np.ndarray) -> np.ndarray:
    """Rows of the most unusual events of each of these agents."""
    rows = run_scores.by_surprise[np.isin(run_scores.codes[run_scores.by_surprise], in_full)]
    rows = rows[np.argsort(run_scores.codes[rows], kind="stable")]
    starts = np.r_[True, run_scores.codes[rows][1:] != run_scores.codes[rows][:-1]]
    place = np.arange(len(rows)) - np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
    return rows[place < MOST_DETAILS]


def _first_seen(codes: np.ndarray) -> np.ndarray:
    _, first = np.unique(codes, return_index=True)
    return codes[np.sort(first)]


# ------------------------------------------------------------------------------------------------- import
def _import(store: Store, run: RunTables, run_scores: RunScores, choice: Choice) -> dict[str, list[int]]:
    """The agents in full with all that is known of them; of those beside them the scores. Returns, by agent, the keys
    of the events that come with everything behind their scores."""
    schema, entity = run.schema, run.schema.entity
    layout = Layout.of(schema)
    in_full, beside = ([run_scores.names[code] for code in codes] for codes in (choice.in_full, choice.beside))
    with_details = run.with_details(run.events.take(pa.array(choice.with_details)))
    add_table(store, with_details, layout, "report: alerts")
    keys: dict[str, list[int]] = {str(name): [] for name in in_full}
    for name, key in zip(with_details[entity].to_pylist(), keys_of(with_details, schema), strict=True):
        keys[str(name)].append(key)
    own = rows_of(run.events, entity, [*in_full, *beside], _lean_columns(run, layout))
    assert own is not None  # the entities were read from this table
    add_table(store, own, layout, "report: scores")
    history = rows_of(run.history, entity, in_full)
    if history is not None:
        add_table(store, without_scored(own, history, schema), layout, "report: the weeks before")
    add_movements(store, rows_of(run.trips, entity, in_full), rows_of(run.gaps, entity, in_full))
    add_absences(store, rows_of(run.absences, entity, in_full), schema)
    if run.agents is not None:
        names = pa.array(in_full).cast(run.agents[entity].type)
        set_agents(store, run.agents.filter(pc.is_in(run.agents[entity], names)), schema)
    return keys


def _lean_columns(run: RunTables, layout: Layout) -> list[str]:
    """What a line or a cell shows of an event, without what is behind its score."""
    schema = layout.schema
    columns = [schema.entity, schema.time, schema.end, schema.timezone, *layout.columns.values(), *SCORES]
    return [name for name in dict.fromkeys(columns) if name and name in run.events.schema.names]


# ------------------------------------------------------------------------------------------------ answers
def _for_all(
    connection: Connection, run: RunTables, run_scores: RunScores, choice: Choice, *, lanes: int, title: str | None
) -> dict[str, Any]:
    facts = run_facts(run, run_scores)
    summary = queries.totals(connection)
    summary |= {"events": len(run_scores.score), "agents": len(run_scores.names), "alerts": int(run_scores.alert.sum())}
    summary["unusual"] = _count_unusual(run_scores)
    summary["curve"] = [c for c in summary["curve"] if c["score"] > choice.listed_above]
    span = queries.span(connection)
    assert span is not None
    _, rows = queries.lanes(connection, Filter(), *span, limit=lanes, offset=0)
    about = {name: facts[name] for name in ("notes", "rate", "chance_share", "categories", "days")}
    return {
        "/v1/about": {**_about(run, title), **about},
        "/v1/summary": summary,
        "/v1/run": facts,
        "/v1/lanes": {"first": iso_date(span[0]), "last": iso_date(span[1]), "lanes": rows},
        "/v1/alerts": {"alerts": _lines(connection, run_scores, choice)},
    }


def _count_unusual(run_scores: RunScores) -> int:
    """Events as unusual as the mildest alert, of everybody, also of whom the file does not hold."""
    mildest = run_scores.score[run_scores.alert].min(initial=np.inf)
    return int((run_scores.score >= mildest).sum())


def _about(run: RunTables, title: str | None) -> dict[str, Any]:
    schema, created_at = run.schema, run.run.get("created")
    note = "This file holds everything it shows and fetches nothing."
    return {
        "version": __version__, "entity_word": schema.entity_word, "event_word": schema.event_word, "tiles": "",
        "map": None,
        "caller": "", "roles": [], "live": False, "devices": False,
        "run": title or str(run.run.get("name") or "") or "report",
        "has_place": any(f.kind == "place" for f in schema.features), "alerts_per_day": None, "alert_p_value": None,
        "made": f"Made {created_at}. {note}" if created_at else note,
    }  # fmt: skip


def _ground(connection: Connection, ground: Ground) -> dict[str, Any]:
    """What the maps of this file stand on: around almost all places of the agents on show."""
    e = r.events.c
    rows = connection.execute(select(e.lon, e.lat).where(e.lat.is_not(None), e.lon.is_not(None))).all()
    points = np.array([tuple(row) for row in rows], float).reshape(-1, 2)
    if not len(points):
        return ground.near((-180.0, -85.0, 180.0, 85.0))
    return ground.near(box_around(np.quantile(points, [0.01, 0.99], axis=0)))


def _lines(connection: Connection, run_scores: RunScores, choice: Choice) -> list[dict[str, Any]]:
    """Every alert as the list shows it, and the most unusual events as far as they open, in the list's order."""
    least = float(run_scores.score[choice.lines].min())
    _, _, top = queries.alerts(connection, Filter(min_score=least), 0, "score", limit=len(choice.lines), offset=0)
    _, _, alert_lines = queries.alerts(connection, Filter(), 0, "score", limit=len(choice.lines), offset=0)
    both = {line["id"]: line for line in (*top, *alert_lines) if line["alert"] or line["score"] > choice.listed_above}
    return sorted(both.values(), key=lambda line: (-line["score"], int(line["id"])))


def _of_agent(connection: Connection, schema: EventSchema, name: str, keys: list[int]) -> dict[str, Any]:
    """What the service answers about one agent, its events, places and movements, and about these events."""
    history = History.of(connection, name)
    total, events = queries.agent_events(connection, name, None, None, limit=MOST_EVENTS, offset=0)
    path = f"/v1/agents/{quote(name, safe=PLAIN_SIGNS)}"
    answers: dict[str, Any] = {
        path: queries.agent(connection, name),
        f"{path}/events": {"total": total, "offset": 0, "events": events},
        f"{path}/places": {"places": usual_places(history)},
    }
    recent = {row["key"] for row in history.rows}
    details: dict[int, Any] = event_details(connection, schema, [k for k in keys if k in recent], history)
    for key in keys:  # one older than the history that is looked at is shown by itself
        answers[f"/v1/events/{key}"] = details[key] if key in details else event_detail(connection, schema, key)
    moves = movements(connection, name, 0, 2**62, limit=MOST_MOVES)  # their points are short
    return {**short(answers), f"{path}/movements": moves}


def short(value: Any) -> Any:
    """The same with numbers of `DIGITS` digits."""
    kind = type(value)
    if kind is float:
        return float(f"{value:.{DIGITS}g}")
    if kind is dict:
        return {key: short(v) for key, v in value.items()}
    return [short(v) for v in value] if kind is list else value
