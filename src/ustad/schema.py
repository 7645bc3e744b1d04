"""EventSchema: which columns of an event table mean what. Mobility is one preset of it.

A *feature* is what a user speaks of (start time, place, category). The encoder turns each feature into one or
two *fields*, the tokens of the network; a *term* is what is scored. Start time, for instance, is one feature,
two fields (a point on the circle) and one term (an angle); a place is one feature, two fields and two terms.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from ustad.config import NO_YAML
from ustad.tables import DataError, first_line

FeatureKind = Literal["numeric", "cyclic", "categorical", "vector", "place"]
FieldKind = Literal["number", "category", "vector"]
TermKind = Literal["number", "angle", "category", "vector"]
Display = Literal["number", "clock", "duration", "distance", "category", "weekday"]

#: The name of the preset of stays, and who has a stay when: a schema of that name must be of stays.
MOBILITY, STAY_KEYS = "mobility", ("agent_id", "started_at")

#: Values computed from the event's own times instead of read from a column.
DERIVED_VALUES = {
    "@minute_of_day": "minutes since local midnight of the event's start (period 1440)",
    "@weekday": "day of the week of the local date of the start, Monday … Sunday",
    "@month": "month of the local date of the start",
    "@duration": "minutes from start to end",
    "@elapsed": "minutes since the entity's previous event ended (missing for its first)",
    "@ends_seen": "which ends of the event were observed: both, start, end, neither (start_gap_s, end_gap_s)",
}


@dataclass(frozen=True)
class Field:
    """One token of the network: a number, a category (code 0 is `unknown`) or a vector."""

    name: str
    kind: FieldKind
    size: int = 1  # number: 1; category: classes including unknown; vector: its length


@dataclass(frozen=True)
class Term:
    """One thing that is predicted and scored, made of one field or (an angle) of two."""

    name: str
    kind: TermKind
    fields: tuple[str, ...]
    feature: str
    scored: bool = True


@dataclass(frozen=True)
class Feature:
    """One feature of an event.

    `source` is a column (the feature's own name by default), a derived value such as `@minute_of_day`, or two
    columns (latitude, longitude) for a place.
    """

    name: str
    kind: FeatureKind
    source: tuple[str, ...] = ()
    period: float = 0.0  # cyclic: the length of one round, in the source's unit
    transform: Literal["none", "log"] = "none"  # numeric: log(1 + x) before scaling, for long tails
    size: int = 0  # vector: its length
    max_categories: int = 10_000  # categorical: the most frequent ones are kept, the rest are `unknown`
    scored: bool = True  # False: still an input and a target in training, but not part of the score
    label: str = ""  # how reasons call it
    unit: str = ""
    display: Display = "number"

    def __post_init__(self) -> None:
        if not self.source:
            object.__setattr__(self, "source", (self.name,))
        elif isinstance(self.source, str):
            object.__setattr__(self, "source", (self.source,))
        else:
            object.__setattr__(self, "source", tuple(self.source))
        if not self.label:
            object.__setattr__(self, "label", self.name.replace("_", " "))
        problem = self._problem()
        if problem:
            raise DataError(f"schema: feature '{self.name}': {problem}")

    def _problem(self) -> str | None:
        kinds = FeatureKind.__args__  # type: ignore[attr-defined]  # Literal keeps its members there
        if self.kind not in kinds:
            return f"unknown kind '{self.kind}'; choose one of {', '.join(kinds)}"
        if self.kind == "cyclic" and self.period <= 0:
            return f"a cyclic feature needs a period above 0, got {self.period}"
        if self.kind == "vector" and self.size < 1:
            return f"a vector feature needs its size, got {self.size}"
        if self.kind == "place" and len(self.source) != 2:
            return "a place needs two source columns, latitude and longitude"
        if self.kind != "place" and len(self.source) != 1:
            return f"expected one source column, got {len(self.source)}"
        unknown = [s for s in self.source if s.startswith("@") and s not in DERIVED_VALUES]
        if unknown:
            return f"unknown derived value {unknown[0]}; known are {', '.join(DERIVED_VALUES)}"
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that this feature reads."""
        return tuple(s for s in self.source if not s.startswith("@"))

    @property
    def field_names(self) -> tuple[str, ...]:
        if self.kind == "cyclic":
            return (f"{self.name}_x", f"{self.name}_y")
        if self.kind == "place":
            return ("x", "y") if self.name == "place" else (f"{self.name}_x", f"{self.name}_y")
        return (self.name,)

    def terms(self) -> tuple[Term, ...]:
        names = self.field_names
        if self.kind == "cyclic":
            return (Term(self.name, "angle", names, self.name, self.scored),)
        kind: TermKind = {"categorical": "category", "vector": "vector"}.get(self.kind, "number")  # type: ignore[assignment]  # the two values are TermKinds
        return tuple(Term(name, kind, (name,), self.name, self.scored) for name in names)


@dataclass(frozen=True)
class EventSchema:
    """Which columns identify, date and describe an event."""

    name: str
    features: tuple[Feature, ...]
    entity: str = "entity_id"
    time: str = "time"
    end: str | None = None
    event_id: str | None = None
    timezone: str = "UTC"  # an IANA zone, or the column that holds each row's zone
    habitat: str | None = None  # the column that says where an entity is at home: a place, a merchant, a screen
    entity_word: str = "entity"  # how reasons and pages call them
    event_word: str = "event"
    extra: tuple[str, ...] = field(default=())  # columns carried into the score table untouched

    def __post_init__(self) -> None:
        features = tuple(f if isinstance(f, Feature) else _build(Feature, f, "feature") for f in self.features)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "extra", tuple(self.extra))
        if not features:
            raise DataError(f"schema '{self.name}': at least one feature is needed")
        if self.name == MOBILITY and (self.entity, self.time) != STAY_KEYS:
            raise DataError(f"schema '{self.name}': that name is kept for stays (agent_id, started_at); choose another")
        names = [n for f in features for n in f.field_names]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise DataError(f"schema '{self.name}': two features give the same field {sorted(twice)[0]}")
        if self.end is None and any("@duration" in f.source for f in features):
            raise DataError(f"schema '{self.name}': @duration needs the column of the end (end: …)")

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column the encoder must find (the time zone's too, where it is a column)."""
        columns = [self.entity, self.time, *([self.end] if self.end else [])]
        columns += [c for f in self.features for c in f.columns]
        return tuple(dict.fromkeys(columns))

    def terms(self) -> tuple[Term, ...]:
        return tuple(t for f in self.features for t in f.terms())

    def feature(self, name: str) -> Feature:
        return next(f for f in self.features if f.name == name)

    def to_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        content["features"] = [
            {k: (list(v) if isinstance(v, tuple) else v) for k, v in f.items()} for f in content["features"]
        ]
        content["extra"] = list(self.extra)
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> EventSchema:
        return _build(cls, content, "schema")

    @classmethod
    def from_yaml(cls, path: Path | str) -> EventSchema:
        path = Path(path)
        if not path.exists():
            raise DataError(f"{path}: no such schema file")
        try:
            content = yaml.safe_load(path.read_text())
        except NO_YAML as error:
            raise DataError(f"{path}: not valid YAML ({first_line(error)})") from error
        if not isinstance(content, dict):
            raise DataError(f"{path}: expected a mapping with 'features', 'entity' and 'time'")
        name = path.stem if path.stem != MOBILITY else "events"  # a file's name alone makes nothing the preset
        return cls.from_dict({"name": name, **content})

    def to_yaml(self, path: Path | str) -> None:
        Path(path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True))


def plural(word: str) -> str:
    """Several of a schema's entities or events, in words: agents, entities, purchases, boxes."""
    if word.endswith("y") and word[-2:-1] not in ("", *"aeiou"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"


def _build(kind: Any, content: dict[str, Any], what: str) -> Any:
    names = [f.name for f in dataclasses.fields(kind)]
    for key in content:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; known are {', '.join(names)}"
            raise DataError(f"schema: unknown key '{key}' in a {what}{hint}")
    try:
        return kind(**content)
    except TypeError as error:
        raise DataError(f"schema: a {what} is incomplete: {error}") from error
    except AttributeError as error:  # a mapping or a number where a name is expected
        raise DataError(f"schema: a {what} holds a value of another kind: {error}") from error


TRIP_SUMMARY = ("trip_km", "trip_min", "trip_straightness")


def mobility_schema(
    trips: str = "none", trip_size: int = 16, log_duration: bool = False, ends_seen: bool = False
) -> EventSchema:
    """The paper's stay-point event: start on the circle, duration, x, y, POI category, day of week, trip.

    `trips`: `none`, `summary` (length, duration, straightness) or `embedding` (two vectors, shape and speed). They
    are inputs that are masked as the others are, never scored: the paper's score is of the other features.
    `ends_seen` adds which ends of the stay were observed: an input that is masked as the others are, never scored.
    """
    features = [
        Feature("start", "cyclic", ("@minute_of_day",), period=1440.0, label="start", unit="min", display="clock"),
        Feature(
            "duration",
            "numeric",
            ("@duration",),
            transform="log" if log_duration else "none",
            label="stay",
            unit="min",
            display="duration",
        ),
        Feature("place", "place", ("lat", "lon"), label="place", unit="km", display="distance"),
        Feature("poi", "categorical", ("poi_category",), label="kind of place", display="category"),
        Feature("weekday", "categorical", ("@weekday",), label="day of week", display="weekday"),
    ]
    if ends_seen:
        features.append(
            Feature("ends_seen", "categorical", ("@ends_seen",), scored=False, label="ends seen", display="category")
        )
    if trips == "summary":
        features.append(Feature("trip_summary", "vector", size=len(TRIP_SUMMARY), scored=False, label="trip there"))
    elif trips == "embedding":
        features.append(Feature("trip_shape", "vector", size=trip_size, scored=False, label="route there"))
        features.append(Feature("trip_speed", "vector", size=trip_size, scored=False, label="speed on the way"))
    return EventSchema(
        name=MOBILITY,
        features=tuple(features),
        entity=STAY_KEYS[0],
        time=STAY_KEYS[1],
        end="finished_at",
        event_id="stay_id",
        timezone="timezone",
        habitat="poi_id",
        entity_word="agent",
        event_word="stay",
        extra=("poi_id", "n_fixes", "start_gap_s", "end_gap_s", "observed_s"),
    )
