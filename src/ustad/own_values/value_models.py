"""What is usual of one feature: in the population by kind of event, and for each entity by its own values.

A model is fitted on training values. It turns values into those that are remembered (`remember`), and says how rare
values are among an entity's own ones (`compare`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.events.encoder import Scale
from ustad.own_values.own_events import OwnEvents
from ustad.own_values.value_kernels import POPULATION, count_same, nearest_vectors, rarity_of_numbers
from ustad.schema import Feature

#: Points that stand for the population.
POINTS = 256
#: So many events of a kind, and own values, weigh as much as those of everybody.
KIND_WEIGHT, OWN_WEIGHT = 10.0, 5.0
#: From so many own values on, what is usual is told of them, not of everybody.
LEAST_OWN = 5
#: Shares between which a value is called usual, and those that a spread is half the distance of.
USUAL, SPREAD = (0.1, 0.9), (0.16, 0.84)
#: Numbers that are never negative are on a logarithmic scale where the upper tail is so many times the lower one.
LEAST_SKEW = 3.0
#: The narrowest kernel of an entity, in spreads of the population.
LEAST_WIDTH = 0.05
#: Own vectors that a vector is compared with.
NEAREST = 3


@dataclass(frozen=True)
class OwnValues:
    """What is remembered of one feature: values of entity e are `offsets[e] … offsets[e + 1]`."""

    offsets: np.ndarray  # int64 [E + 1]
    values: np.ndarray  # float64 [M] or [M, size]
    summary: Any  # what the model's `summarise` makes of them


@dataclass(frozen=True)
class Comparison:
    """N values compared with own ones."""

    raw: np.ndarray  # float64 [N] larger is more unusual, NaN where there is no answer
    own_count: np.ndarray  # int64 [N] own values that are remembered
    observed: np.ndarray  # float64 [N], or object [N] of words
    expected: np.ndarray | None = None  # of the same kind
    spread: np.ndarray | None = None  # float64 [N]
    low: np.ndarray | None = None  # float64 [N] usual values lie between these
    high: np.ndarray | None = None
    same: np.ndarray | None = None  # int64 [N] own values that are the same word


def find_codes(words: pa.Array, known_words: tuple[str, ...]) -> np.ndarray:
    """The place of each word among those that are known, -1 where it is none of them: int64 [n]."""
    codes = pc.index_in(words, pa.array(known_words, pa.string()))
    return pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def quantiles_by_group(
    group: np.ndarray, values: np.ndarray, groups: int, shares: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Order statistics of each group's values, NaN where it has none (float64 [groups, shares]), and their number."""
    has = np.isfinite(values)
    order = np.lexsort((values[has], group[has]))
    ascending, count = values[has][order], np.bincount(group[has], minlength=groups)
    first = np.cumsum(count) - count
    result = np.full((groups, len(shares)), np.nan)
    for column, share in enumerate(shares):
        at = first + np.round(share * np.maximum(count - 1, 0)).astype(np.int64)
        result[count > 0, column] = ascending[at[count > 0]]
    return result, count


@dataclass(frozen=True)
class NumberModel:
    """A number, or an angle where there is a period. It is remembered in spreads from what its kind of event has."""

    log: bool
    unit: float  # of the logarithm: log(1 + value / unit)
    period: float  # of an angle, else 0
    centre: np.ndarray  # float64 [kinds + 1], first of all kinds
    scale: np.ndarray  # float64 [kinds + 1]
    points: np.ndarray  # float64 [POINTS] the population's remembered values

    @classmethod
    def fit(cls, feature: Feature, values: np.ndarray, kind: np.ndarray, kinds: int) -> NumberModel:
        """From training values [n] and the codes of their kinds."""
        log, unit = _choose_log(feature, values)
        model = cls(log, unit, feature.period, np.zeros(1), np.ones(1), np.zeros(0))
        levels = model._transform(values)
        if model.period:
            centre = np.array([_mean_angle(levels, model.period)])
            spread = np.array(Scale.fit(_wrap(levels - centre, model.period)[:, None]).scale)
        else:
            centre, spread = _by_kind(levels, kind, kinds)
        model = cls(log, unit, feature.period, centre, spread, np.zeros(0))
        known_values = np.sort(model.remember(values, kind)[np.isfinite(values)])
        at = ((np.arange(POINTS) + 0.5) / POINTS * len(known_values)).astype(np.int64)
        return cls(log, unit, feature.period, centre, spread, known_values[at] if len(known_values) else np.zeros(0))

    def remember(self, values: np.ndarray, kind: np.ndarray) -> np.ndarray:
        code = self._codes(kind)
        apart = self._transform(values) - self.centre[code]
        return (_wrap(apart, self.period) if self.period else apart) / self.scale[code]

    def compare(self, own: OwnValues, owner: np.ndarray, values: np.ndarray, kind: np.ndarray) -> Comparison:
        width, usual = own.summary
        own_values, code = self.remember(values, kind), self._codes(kind)
        period = self.period / self.scale[0] if self.period else 0.0
        raw, own_count = rarity_of_numbers(owner, own_values, own.offsets, own.values, width, self.points, period)
        quantiles = np.where((own_count >= LEAST_OWN)[:, None], usual[owner], usual[-1])  # the last is everybody's
        low, narrow, expected, wide, high = (self._undo(column, code) for column in quantiles.T)
        away = (wide - narrow) % self.period if self.period else wide - narrow
        return Comparison(raw, own_count, values, expected, away / 2, low, high)

    def summarise(self, events: OwnEvents, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The width of each entity's kernel, and its quantiles, those of everybody last: float64 [E], [E + 1, 5]."""
        entities, shares = len(events.entity_key), (USUAL[0], SPREAD[0], 0.5, SPREAD[1], USUAL[1])
        values = np.r_[events.values[name], self.points]
        owner = np.r_[events.row_owner, np.full(len(self.points), entities)]
        centre = self._own_centres(values, owner, entities + 1)
        apart = _wrap(values - centre[owner], self.period / self.scale[0]) if self.period else values - centre[owner]
        quantiles, count = quantiles_by_group(owner, apart, entities + 1, shares)
        spread = np.nan_to_num((quantiles[:, 3] - quantiles[:, 1]) / 2)
        spread = (count * spread + OWN_WEIGHT) / (count + OWN_WEIGHT)
        width = np.maximum(0.6 * spread * np.maximum(count, 1) ** -0.2, LEAST_WIDTH)[:-1]
        return width, quantiles + centre[:, None]

    def _own_centres(self, values: np.ndarray, owner: np.ndarray, entities: int) -> np.ndarray:
        """What quantiles are counted from: 0, on a circle each entity's own mean."""
        if not self.period:
            return np.zeros(entities)
        unit, has = self.period / self.scale[0] / (2 * np.pi), np.isfinite(values)
        sine, cosine = (np.bincount(owner[has], f(values[has] / unit), entities) for f in (np.sin, np.cos))
        return np.arctan2(sine, cosine) * unit

    def _codes(self, kind: np.ndarray) -> np.ndarray:
        return np.where(kind < len(self.centre), kind, 0)

    def _transform(self, values: np.ndarray) -> np.ndarray:
        return np.log1p(np.maximum(values, 0.0) / self.unit) if self.log else values

    def _undo(self, own_value: np.ndarray, code: np.ndarray) -> np.ndarray:
        plain = own_value * self.scale[code] + self.centre[code]
        plain = np.expm1(np.minimum(plain, 700.0)) * self.unit if self.log else plain
        return plain % self.period if self.period else plain

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {"centre": self.centre, "scale": self.scale, "points": self.points}
        return arrays, {"model": "number", "log": self.log, "unit": self.unit, "period": self.period}

    @classmethod
    def from_parts(cls, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> NumberModel:
        return cls(
            bool(facts["log"]), float(facts["unit"]), float(facts["period"]),
            arrays["centre"], arrays["scale"], arrays["points"],
        )  # fmt: skip


def _choose_log(feature: Feature, values: np.ndarray) -> tuple[bool, float]:
    """Whether a logarithm is taken, and of which unit: as the schema says, or where values are positive and skewed."""
    known_values = values[np.isfinite(values)]
    if feature.transform == "log":
        return True, 1.0
    if feature.kind == "cyclic" or not len(known_values) or known_values.min() < 0:
        return False, 1.0
    low, middle, high = np.quantile(known_values, (0.05, 0.5, 0.95))
    is_skewed = middle > 0 and high - middle > LEAST_SKEW * (middle - low)
    return bool(is_skewed), float(0.1 * middle) if is_skewed else 1.0


def _by_kind(values: np.ndarray, kind: np.ndarray, kinds: int) -> tuple[np.ndarray, np.ndarray]:
    """Median and spread of each kind, of few events mixed with those of all: float64 [kinds + 1] each."""
    whole = Scale.fit(values[:, None])
    quantiles, count = quantiles_by_group(kind, values, kinds + 1, (SPREAD[0], 0.5, SPREAD[1]))
    own = np.where(np.arange(kinds + 1) > 0, count, 0)
    spread = np.nan_to_num((quantiles[:, 2] - quantiles[:, 0]) / 2)
    return tuple(
        (own * np.nan_to_num(of_kind) + KIND_WEIGHT * of_all) / (own + KIND_WEIGHT)
        for of_kind, of_all in ((quantiles[:, 1], whole.centre[0]), (spread, whole.scale[0]))
    )


def _mean_angle(values: np.ndarray, period: float) -> float:
    angle = values[np.isfinite(values)] / period * 2 * np.pi
    return float(np.arctan2(np.sin(angle).sum(), np.cos(angle).sum()) / (2 * np.pi) * period)


def _wrap(apart: np.ndarray, period: float) -> np.ndarray:
    """The shorter way round: -period/2 … period/2."""
    return (apart + period / 2) % period - period / 2


@dataclass(frozen=True)
class WordModel:
    """A category. It is remembered as a code; -1 is a word that nobody had in training."""

    words: tuple[str, ...]
    count: np.ndarray  # float64 [words] in the population
    pair: np.ndarray  # int64 [P] ascending: kind times the number of words, plus the word
    pair_count: np.ndarray  # float64 [P]
    kind_count: np.ndarray  # float64 [kinds + 1]

    @classmethod
    def fit(cls, feature: Feature, values: pa.Array, kind: np.ndarray, kinds: int) -> WordModel:
        counts = pc.value_counts(values.drop_null())
        by_count = sorted(zip(*(counts.field(i).to_pylist() for i in (1, 0)), strict=True), key=lambda p: (-p[0], p[1]))
        words = tuple(sorted(word for _, word in by_count[: feature.max_categories]))
        model = cls(words, *(np.zeros(0) for _ in range(4)))
        code = model.remember(values, kind)
        has = code >= 0
        codes, own_kind = code[has].astype(np.int64), kind[has]
        pair, pair_count = np.unique(own_kind * len(words) + codes, return_counts=True)
        return cls(
            words, np.bincount(codes, minlength=len(words)).astype(np.float64), pair, pair_count.astype(np.float64),
            np.bincount(own_kind, minlength=kinds + 1).astype(np.float64),
        )  # fmt: skip

    def remember(self, values: pa.Array, kind: np.ndarray) -> np.ndarray:
        code = find_codes(values, self.words).astype(np.float64)
        return np.where(pc.is_null(values).to_numpy(zero_copy_only=False), np.nan, code)

    def compare(self, own: OwnValues, owner: np.ndarray, values: pa.Array, kind: np.ndarray) -> Comparison:
        code = self.remember(values, kind)
        same, own_count = count_same(owner, code, own.offsets, own.values)
        share = (same + POPULATION * self._share(code, kind)) / (own_count + POPULATION)
        raw = np.where(np.isnan(code), np.nan, -np.log(share))
        expected = np.array([*self.words, None], dtype=object)[np.where(own_count >= LEAST_OWN, own.summary[owner], -1)]
        observed = np.array([*values.to_pylist(), None], dtype=object)[:-1]
        return Comparison(raw, own_count, observed, expected, same=same)

    def _share(self, code: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """How frequent words are in the population, given the kind of event: float64 [N]."""
        word = np.where(code >= 0, code, 0).astype(np.int64)
        total = self.count.sum()
        frequency = np.where(code >= 0, np.append(self.count, 0.0)[word], 0.0)
        overall = (frequency + 0.5) / (total + 0.5 * (len(self.words) + 1))
        kind = np.where(kind < len(self.kind_count), kind, 0)
        pair = kind * len(self.words) + word
        at = np.minimum(np.searchsorted(self.pair, pair), max(len(self.pair) - 1, 0))
        is_known = (code >= 0) & (self.pair[at] == pair) if len(self.pair) else np.zeros(len(code), bool)
        of_kind = np.where(is_known, self.pair_count[at] if len(self.pair) else 0.0, 0.0)
        return (of_kind + OWN_WEIGHT * overall) / (self.kind_count[kind] + OWN_WEIGHT)

    def summarise(self, events: OwnEvents, name: str) -> np.ndarray:
        """The code of each entity's most frequent word, -1 where it has none; last that of nobody: int64 [E + 1]."""
        values, result = events.values[name], np.full(len(events.entity_key) + 1, -1)
        has, words = values >= 0, max(len(self.words), 1)
        pair, count = np.unique(events.row_owner[has] * words + values[has].astype(np.int64), return_counts=True)
        order = np.lexsort((-pair, count))  # the most frequent last, of equals the first word
        result[pair[order] // words] = pair[order] % words
        return result

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        names = ("count", "pair", "pair_count", "kind_count")
        return {name: getattr(self, name) for name in names}, {"model": "word", "words": list(self.words)}

    @classmethod
    def from_parts(cls, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> WordModel:
        names = ("count", "pair", "pair_count", "kind_count")
        return cls(tuple(facts["words"]), *(arrays[name] for name in names))


@dataclass(frozen=True)
class VectorModel:
    """A vector, by its distance to the entity's nearest own ones. It is remembered in spreads of each component."""

    centre: np.ndarray  # float64 [size]
    scale: np.ndarray

    @classmethod
    def fit(cls, feature: Feature, values: np.ndarray, kind: np.ndarray, kinds: int) -> VectorModel:
        scale = Scale.fit(values)
        return cls(np.array(scale.centre), np.array(scale.scale))

    def remember(self, values: np.ndarray, kind: np.ndarray) -> np.ndarray:
        return (values - self.centre) / self.scale

    def summarise(self, events: OwnEvents, name: str) -> None:
        """Nothing is told of them."""

    def compare(self, own: OwnValues, owner: np.ndarray, values: np.ndarray, kind: np.ndarray) -> Comparison:
        distance, own_count = nearest_vectors(owner, self.remember(values, kind), own.offsets, own.values, NEAREST)
        return Comparison(distance, own_count, np.full(len(values), np.nan))

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"centre": self.centre, "scale": self.scale}, {"model": "vector"}

    @classmethod
    def from_parts(cls, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> VectorModel:
        return cls(arrays["centre"], arrays["scale"])


Model = NumberModel | WordModel | VectorModel
#: By the kind of a feature, and by what a file calls them.
BY_FEATURE: dict[str, type[Model]] = {
    "numeric": NumberModel, "cyclic": NumberModel, "categorical": WordModel, "vector": VectorModel,
}  # fmt: skip
BY_NAME: dict[str, type[Model]] = {"number": NumberModel, "word": WordModel, "vector": VectorModel}
