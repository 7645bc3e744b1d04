"""What every detector offers, ours and the ones it is compared with, and where to find them by name.

A detector is fitted on events without labels and scores later ones; higher is more unusual. The registry maps a
name to "module:Class" and imports the module only when it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from ustad.config import ConfigError
from ustad.dataset import Dataset
from ustad.files import as_table
from ustad.schema import EventSchema
from ustad.scores import Scores
from ustad.tables import DataError, agent_codes

#: name → "module:Class". A new baseline is one file and one line here.
REGISTRY: dict[str, str] = {
    "random": "ustad.lab.baselines.random:Random",
    "visit-rate": "ustad.lab.baselines.visit_rate:VisitRate",
    "visit-rate-causal": "ustad.lab.baselines.visit_rate:CausalVisitRate",
    "visit-rate-category": "ustad.lab.baselines.visit_rate:CategoryVisitRate",
    "visit-rate-category-hour": "ustad.lab.baselines.visit_rate:CategoryHourVisitRate",
    "distance": "ustad.lab.baselines.distance:OwnPlaceDistance",
    "ibat": "ustad.lab.baselines.ibat:Ibat",
    "gm-vsae": "ustad.lab.baselines.gm_vsae:GmVsae",
    "atrom": "ustad.lab.baselines.atrom:Atrom",
    "nov-online": "ustad.lab.baselines.nov_online:NovOnline",
    "mlp": "ustad.lab.baselines.mlp:Mlp",
    "lstm": "ustad.lab.baselines.lstm:Lstm",
    "transformer": "ustad.lab.baselines.transformer:Transformer",
    "lightpath": "ustad.lab.baselines.lightpath:LightPath",
    "ctle": "ustad.lab.baselines.ctle:Ctle",
    "sensitive-hue": "ustad.lab.baselines.sensitive_hue:SensitiveHue",
    "dual-tr": "ustad.lab.baselines.ablations:DualTransformerOnly",
    "ustad-plain": "ustad.lab.baselines.ablations:Ustad",
    "ustad-au": "ustad.lab.baselines.ablations:UstadAu",
    "ustad-eu": "ustad.lab.baselines.ablations:UstadEu",
    "ustad-minmax": "ustad.lab.baselines.ustad_variants:UstadMinMax",
    "ustad-lambda": "ustad.lab.baselines.ustad_variants:UstadLambda",
    "ustad-none": "ustad.lab.baselines.ablations:UstadNone",
    "pyod": "ustad.lab.baselines.pyod_adapter:Pyod",
    "pyod-ecod": "ustad.lab.baselines.pyod_adapter:PyodEcod",
    "pyod-knn": "ustad.lab.baselines.pyod_adapter:PyodKnn",
}


@dataclass(frozen=True)
class Abilities:
    """What a detector can do."""

    scores_events: bool
    scores_agents: bool
    predicts: bool  # gives expected values of masked features
    causal: bool  # an event's score never uses what comes after it


@runtime_checkable
class DetectorProtocol(Protocol):
    """`Class(schema, seed=…, **options)`; `fit` returns the detector itself.

    Events come as a path, a Dataset or anything with an Arrow C stream. `context` holds events before the first
    scored one, for detectors that look back.
    """

    abilities: ClassVar[Abilities]

    def fit(self, train: Any, validation: Any = None) -> DetectorProtocol: ...

    def score(self, events: Any, context: Any = None) -> Scores: ...


def make(name: str, schema: EventSchema | None = None, seed: int = 7, **options: Any) -> DetectorProtocol:
    """The detector of that name, not yet fitted."""
    return find(name)(schema=schema, seed=seed, **options)


def find(name: str) -> Any:
    """The class behind a name of the registry."""
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"unknown method '{name}'{hint} (known: {', '.join(REGISTRY)})")
    module, _, attribute = REGISTRY[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def describe(name: str) -> dict[str, Any]:
    """Name, first line of the documentation and abilities: what `ustad lab methods` lists."""
    kind = find(name)
    about = (kind.__doc__ or "").strip().splitlines()
    return {"name": name, "about": about[0] if about else "", **asdict(kind.abilities)}


def describe_settings(name: str) -> list[dict[str, Any]]:
    """Each setting of a method: its name, default and meaning, and the choices that a search tries (or None)."""
    return [
        {"name": f.name, "default": f.default, "about": f.metadata["about"], "search": f.metadata.get("search")}
        for f in fields(find(name).settings_class)
    ]


# ---------------------------------------------------------------------------------- shared by the baselines
def events_of(source: Any, schema: EventSchema, where: str = "events") -> pa.Table:
    """The event table behind a path, a Dataset or an Arrow stream; refuses one without the identifying columns."""
    table = source.events if isinstance(source, Dataset) else as_table(source, where)
    for name in (schema.entity, schema.time):
        if name not in table.column_names:
            raise DataError(f"{where}: missing column {name}; found {', '.join(table.column_names) or 'no columns'}")
    if table.num_rows == 0:
        raise DataError(f"{where}: the table is empty")
    return table


def event_table(events: pa.Table, schema: EventSchema, score: np.ndarray) -> pa.Table:
    """The event score table: what identifies each event, and its score."""
    keys = [schema.event_id, schema.entity, schema.time, schema.end]
    table = events.select([name for name in keys if name is not None and name in events.column_names])
    return table.append_column("score", pa.array(score, pa.float64()))


def agents_by_worst(events: pa.Table, schema: EventSchema, score: np.ndarray) -> pa.Table:
    """The agent score table where an agent is as unusual as its most unusual event (the first among equals)."""
    codes, values = agent_codes(events[schema.entity])
    time = events[schema.time].cast(pa.int64()).to_numpy()
    order = np.lexsort((time, -score, codes))
    first = order[np.searchsorted(codes[order], np.arange(len(values)))]
    columns = {
        schema.entity: pa.array(values, events[schema.entity].type),
        "score": pa.array(score[first], pa.float64()),
        "n_events": pa.array(np.bincount(codes, minlength=len(values)), pa.int64()),
    }
    if schema.event_id is not None and schema.event_id in events.column_names:
        columns[f"worst_{schema.event_id}"] = events[schema.event_id].take(pa.array(first)).combine_chunks()
    return pa.table(columns)


def neighbours_maximum(
    score: np.ndarray, events: pa.Table, entity: str, time: str, *, later: bool = True
) -> np.ndarray:
    """The maximum of each event, the same agent's event before it and (`later`) the one after it: float64 [n]."""
    agents = agent_codes(events[entity])[0]
    order = np.lexsort((events[time].cast(pa.int64()).to_numpy(), agents))
    by_rank, same = score[order], agents[order][1:] == agents[order][:-1]
    widest = by_rank.copy()
    widest[1:] = np.where(same, np.maximum(widest[1:], by_rank[:-1]), widest[1:])
    if later:
        widest[:-1] = np.where(same, np.maximum(widest[:-1], by_rank[1:]), widest[:-1])
    result = np.empty_like(score)
    result[order] = widest
    return result
