"""How well scores find what is labelled: AUROC, average precision and precision@k, for events and for agents.

In go score tables (`stay_id`/`agent_id`, `score`) and label tables (`anomaly`, and perhaps `kind`, `recurring`,
`role`; an identifier that is not labelled counts as ordinary); out comes one dictionary of plain numbers, with
intervals from a bootstrap over agents. Labels are read here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.files import as_table
from ustad.lab.baselines.protocol import neighbours_maximum
from ustad.tables import AGENT_LABELS, STAY_LABELS, Contract, DataError, agent_codes, validate

PRECISION_AT = (10, 50, 100, 500)
#: Columns of a label table whose values are also evaluated apart.
GROUPS = ("recurring", "kind", "role")


# ------------------------------------------------------------------------------------------- plain metrics
class Ranking:
    """Scores sorted once, so that many weightings (bootstrap replicates) are cheap. Ties share one rank."""

    def __init__(self, truth: np.ndarray, score: np.ndarray) -> None:
        truth, score = np.asarray(truth, bool), np.asarray(score, np.float64)
        if truth.shape != score.shape or truth.ndim != 1:
            raise DataError(f"labels {truth.shape} and scores {score.shape} must be two columns of one length")
        if np.isnan(score).any():
            raise DataError(f"column 'score': {int(np.isnan(score).sum()):,} of {len(score):,} rows are NaN")
        self.order = np.argsort(-score, kind="stable")
        self.truth = truth[self.order]
        descending = score[self.order]
        self.starts = (
            np.flatnonzero(np.r_[True, descending[1:] != descending[:-1]]) if len(descending) else np.empty(0, np.int64)
        )

    def measure(self, weight: np.ndarray | None = None) -> tuple[float, float]:
        """(AUROC, average precision), each row counted `weight` times; NaN where a class is absent."""
        if not len(self.starts):
            return float("nan"), float("nan")
        w = np.ones(len(self.truth)) if weight is None else np.asarray(weight, np.float64)[self.order]
        hits = np.add.reduceat(w * self.truth, self.starts)
        misses = np.add.reduceat(w * ~self.truth, self.starts)
        hit_counts, alarms = np.cumsum(hits), np.cumsum(misses)
        positives, negatives = hit_counts[-1], alarms[-1]
        if positives == 0:
            return float("nan"), float("nan")
        row_counts = np.maximum(hit_counts + alarms, 1e-300)
        precision = float(np.sum(hits * hit_counts / row_counts) / positives)
        if negatives == 0:
            return float("nan"), precision
        area = float(np.sum(misses * (hit_counts - hits / 2)) / (positives * negatives))
        return area, precision


def auroc(truth: np.ndarray, score: np.ndarray) -> float:
    """Area under the ROC curve: the chance that a labelled row scores above another; ties count half."""
    return Ranking(truth, score).measure()[0]


def average_precision(truth: np.ndarray, score: np.ndarray) -> float:
    """AUPR as average precision: precision at each score, weighted by the recall it adds."""
    return Ranking(truth, score).measure()[1]


def precision_at(truth: np.ndarray, score: np.ndarray, k: int) -> float:
    """Share of labelled rows among the k highest; rows tied at the k-th place count with their mean."""
    truth, score = np.asarray(truth, bool), np.asarray(score, np.float64)
    if k < 1 or k > len(score):
        return float("nan")
    edge = np.partition(score, len(score) - k)[len(score) - k]
    above, is_at_edge = score > edge, score == edge
    return float((truth[above].sum() + (k - above.sum()) * truth[is_at_edge].mean()) / k)


def bootstrap_interval(
    truth: np.ndarray, score: np.ndarray, agents: np.ndarray, replicates: int = 200, *, seed: int = 7
) -> dict[str, list[float]]:
    """95 % intervals of AUROC and average precision when whole agents are drawn again. `agents`: codes 0 … n-1."""
    ranking, n = Ranking(truth, score), int(agents.max()) + 1
    generator = np.random.default_rng(seed)
    draws = []
    for _ in range(replicates):
        counts = np.bincount(generator.integers(0, n, n), minlength=n)
        draws.append(ranking.measure(counts[agents]))
    values = np.array(draws)
    names = ("auroc", "ap")
    return {name: _interval(values[:, column]) for column, name in enumerate(names)}


def _interval(values: np.ndarray) -> list[float]:
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return [float("nan"), float("nan")]
    return [float(v) for v in np.quantile(values, [0.025, 0.975])]


# ------------------------------------------------------------------------------------------- from tables
@dataclass(frozen=True)
class _Level:
    """One level (events or agents) ready to be measured."""

    truth: np.ndarray  # bool [n]
    score: np.ndarray  # float64 [n]
    agents: np.ndarray  # codes [n], the unit of the bootstrap
    groups: Mapping[str, Mapping[str, np.ndarray]]  # column → value → bool [n]
    not_scored: int  # labelled identifiers that have no score
    n_excluded: int


def evaluate(
    event_scores: Any = None,
    agent_scores: Any = None,
    labels: Any = None,
    agent_labels: Any = None,
    *,
    event_id: str = "stay_id",
    entity: str = "agent_id",
    time: str = "started_at",
    exclude_events: Sequence[Any] = (),
    exclude_agents: Sequence[Any] = (),
    bootstrap: int = 200,
    seed: int = 7,
) -> dict[str, Any]:
    """Figures at each level: `{"events": {...}, "incidents": {...}, "agents": {...}}`, whichever the tables allow (`ap`
    is average precision).

    `events` are by their own scores; `incidents` are the same events by the highest score of themselves, the events
    before and after, and their incident's (`incident_scores`), since what was changed often shows beside where it was.

    Tables are paths or anything with an Arrow C stream. Without agent labels, an agent is labelled when one of
    its stays is. Excluded agents (and their events) count neither as found nor as missed.
    """
    events = None if event_scores is None else as_table(event_scores, "event scores")
    agents = None if agent_scores is None else as_table(agent_scores, "agent scores")
    by_event = None if labels is None else _labels(as_table(labels, "labels"), STAY_LABELS, event_id)
    by_agent = None if agent_labels is None else _labels(as_table(agent_labels, "agent labels"), AGENT_LABELS, entity)
    if by_event is None and by_agent is None:
        raise DataError("nothing to compare with: give labels by event or by agent")
    result: dict[str, Any] = {}
    if events is not None and by_event is not None:
        level = _level(events, by_event, event_id, entity, exclude={event_id: exclude_events, entity: exclude_agents})
        result["events"] = _measure(level, bootstrap, seed)
        if time in events.column_names:
            wide = events.set_column(
                events.column_names.index("score"), "score", pa.array(incident_scores(events, entity, time))
            )
            level = _level(wide, by_event, event_id, entity, exclude={event_id: exclude_events, entity: exclude_agents})
            result["incidents"] = _measure(level, bootstrap, seed)
    if agents is not None:
        derived_labels = None if by_event is None else derive_agent_labels(by_event, events, event_id, entity)
        truth = derived_labels if by_agent is None else _with_groups(by_agent, derived_labels, entity)
        level = _level(agents, truth, entity, entity, exclude={entity: exclude_agents})
        result["agents"] = _measure(level, bootstrap, seed)
        result["agents"]["labels"] = "derived from events" if by_agent is None else "by agent"
    if not result:
        raise DataError("labels and scores are of different levels: give event scores for labels by event")
    return result


def incident_scores(events: pa.Table, entity: str = "agent_id", time: str = "started_at") -> np.ndarray:
    """The highest score of each event, the same entity's events before and after it, and, where the table names them,
    the other events of its incident: float64 [n]."""
    score = events["score"].to_numpy().astype(np.float64)
    result = neighbours_maximum(score, events, entity, time)
    if "incident_id" in events.column_names:
        incident = agent_codes(pc.fill_null(events["incident_id"].cast(pa.string()), ""))[0]
        inside = events["incident_id"].is_valid().to_numpy()
        highest = np.full(incident.max() + 1, -np.inf)
        np.maximum.at(highest, incident, score)
        result = np.where(inside, np.maximum(result, highest[incident]), result)
    return result


def derive_agent_labels(labels: pa.Table, events: pa.Table | None, event_id: str, entity: str) -> pa.Table:
    """Agent labels from stay labels: one row for each labelled stay, under its agent."""
    if entity in labels.column_names:
        return labels
    if events is None or entity not in events.column_names:
        raise DataError(f"labels by {event_id} need event scores with '{entity}' to say which agent each belongs to")
    row = _positions(events[event_id], labels, event_id)
    owner = events[entity].take(pa.array(row[row >= 0], pa.int64()))
    return labels.filter(pa.array(row >= 0)).append_column(entity, owner)


def _with_groups(labels: pa.Table, derived_labels: pa.Table | None, entity: str) -> pa.Table:
    """Agent labels, with the groups that only the event labels know (such as `recurring`) added."""
    if derived_labels is None:
        return labels
    missing = [name for name in GROUPS if name in derived_labels.column_names and name not in labels.column_names]
    group_labels = derived_labels.select([entity, *missing]).group_by([entity, *missing]).aggregate([])
    return labels.join(group_labels, entity, join_type="left outer") if missing and derived_labels.num_rows else labels


def _labels(table: pa.Table, contract: Contract, identifier: str) -> pa.Table:
    """Label rows that say anomaly = true, with the columns that are known; an empty table is fine."""
    own = next(iter(contract.required))
    if identifier != own and identifier in table.column_names:
        table = table.rename_columns([own if name == identifier else name for name in table.column_names])
    if table.num_rows:
        table, _ = validate(table, contract)
        table = table.filter(table["anomaly"])
    elif missing := [name for name in contract.required if name not in table.column_names]:
        raise DataError(f"{contract.name}: missing column {missing[0]}")
    return table.rename_columns([identifier if name == own else name for name in table.column_names])


def _level(
    scores: pa.Table, labels: pa.Table, identifier: str, entity: str, *, exclude: Mapping[str, Sequence[Any]]
) -> _Level:
    for name in (identifier, entity, "score"):
        if name not in scores.column_names:
            raise DataError(f"scores: missing column {name}; found {', '.join(scores.column_names) or 'no columns'}")
    if scores.num_rows == 0:
        raise DataError("scores: the table is empty")
    before = scores.num_rows
    for name, values in exclude.items():
        if len(values):
            scores = scores.filter(pc.invert(pc.is_in(scores[name], pa.array(list(values)).cast(scores[name].type))))
    position = _positions(scores[identifier], labels, identifier)
    truth = np.zeros(scores.num_rows, bool)
    truth[position[position >= 0]] = True
    return _Level(
        truth=truth,
        score=scores["score"].to_numpy().astype(np.float64),
        agents=agent_codes(scores[entity])[0],
        groups=_groups(labels, position, scores.num_rows),
        not_scored=len(pc.unique(labels[identifier].filter(pa.array(position < 0)))),
        n_excluded=before - scores.num_rows,
    )


def _positions(identifiers: pa.ChunkedArray, labels: pa.Table, name: str) -> np.ndarray:
    """Row of the scores that each label belongs to, −1 for none; refuses tables that share nothing."""
    label_ids = labels[name]
    if labels.num_rows == 0:
        return np.empty(0, np.int64)
    if label_ids.type != identifiers.type:
        try:
            label_ids = label_ids.cast(identifiers.type)
        except pa.ArrowInvalid as error:
            raise DataError(f"labels: '{name}' is {label_ids.type}, but the scores have {identifiers.type}") from error
    rows = pc.index_in(label_ids, identifiers.combine_chunks())
    if rows.null_count == len(rows):
        raise DataError(
            f"labels and scores share no '{name}': {labels.num_rows:,} labels, {len(identifiers):,} scores; "
            "are they of the same data and the same period?"
        )
    return pc.fill_null(rows, -1).to_numpy().astype(np.int64)


def _groups(labels: pa.Table, position: np.ndarray, n: int) -> dict[str, dict[str, np.ndarray]]:
    result: dict[str, dict[str, np.ndarray]] = {}
    for name in GROUPS:
        if name not in labels.column_names or labels.num_rows == 0:
            continue
        words = labels[name].to_pylist()
        values = np.array([_word(name, value) for value in words], object)
        result[name] = {}
        for value in sorted({v for v in values if v is not None}):
            mask = np.zeros(n, bool)
            rows = position[values == value]
            mask[rows[rows >= 0]] = True
            if mask.any():
                result[name][value] = mask
    return result


def _word(column: str, value: Any) -> str | None:
    if value is None:
        return None
    if column == "recurring":
        return "recurring" if value else "non-recurring"
    return str(value)


def _measure(level: _Level, replicates: int, seed: int) -> dict[str, Any]:
    truth, score = level.truth, level.score
    area, precision = Ranking(truth, score).measure()
    positives = int(truth.sum())
    result: dict[str, Any] = {
        "n": len(truth),
        "positives": positives,
        "prevalence": positives / len(truth) if len(truth) else float("nan"),
        "auroc": area,
        "ap": precision,
        "precision_at": {str(k): precision_at(truth, score, k) for k in PRECISION_AT if k <= len(truth)},
        "not_scored": level.not_scored,
        "excluded": level.n_excluded,
    }
    if positives == 0 or positives == len(truth):
        what = "no row is labelled" if positives == 0 else "every row is labelled"
        result["reason"] = f"{what}: AUROC compares labelled with unlabelled rows and needs both"
        return result
    if replicates:
        result["interval_95"] = bootstrap_interval(truth, score, level.agents, replicates, seed=seed)
    result["by"] = {column: _by_value(level, values) for column, values in level.groups.items() if values}
    return result


def _by_value(level: _Level, values: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Each group of labelled rows against the unlabelled ones; labelled rows of other groups are left out."""
    result = {}
    for value, mask in values.items():
        rows = mask | ~level.truth
        area, precision = Ranking(mask[rows], level.score[rows]).measure()
        result[value] = {"positives": int(mask.sum()), "auroc": area, "ap": precision}
    return result
