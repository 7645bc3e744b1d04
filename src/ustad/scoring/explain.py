"""Reasons: what was expected, what was observed, what drove the score, in one plain sentence.

In go the columns of the score table and the facts of the history; out come the kind of every event and, for the
events somebody will look at, a sentence. Words and units come from the schema; nothing here knows of mobility.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.distribution import UNSURE
from ustad.events.encoder import UNKNOWN, Encoder
from ustad.events.observed import UNOBSERVED_MINUTES, gap_minutes, read_gaps
from ustad.events.visit_counts import Facts
from ustad.events.words import unseen_words, value_words
from ustad.geo import haversine_km
from ustad.schema import Feature, Term
from ustad.ties import first_highest, raised

KINDS = ("predictable", "novel", "unsure", "unobserved")
#: A percentile of 1 counts as this tail: the last that 1 - percentile can tell from nothing.
SMALLEST_TAIL = 1e-16


def kinds(encoder: Encoder, tails: np.ndarray, doubts: np.ndarray, missing: np.ndarray, table: pa.Table) -> np.ndarray:
    """The kind of each event: object [n].

    tails [n, K + 1] are log₁₀ tail shares of the scored terms' losses and the neighbour distance, doubts [n, K]
    those of the terms' uncertainties, missing [n, K] says which terms have no truth.
    """
    driver = drivers(tails)
    last = tails.shape[1] - 1
    doubt = np.take_along_axis(np.c_[doubts, np.zeros(len(doubts))], driver[:, None], axis=1)[:, 0]
    result = np.full(len(tails), "predictable", dtype=object)
    result[np.nan_to_num(doubt) <= raised(UNSURE)] = "unsure"
    result[driver == last] = "novel"
    result[_find_unobserved(encoder, driver, missing, table)] = "unobserved"
    return result


def drivers(tails: np.ndarray) -> np.ndarray:
    """The most unusual column of each event, by log₁₀ tail shares [n, columns]: int64 [n]."""
    return first_highest(np.where(np.isnan(tails), 0.0, -tails).T)


def _find_unobserved(encoder: Encoder, driver: np.ndarray, missing: np.ndarray, table: pa.Table) -> np.ndarray:
    """Half of the terms missing, or a start or duration that rests on an end nobody saw."""
    result = missing.mean(axis=1) >= 0.5 if missing.shape[1] else np.zeros(len(driver), bool)
    terms = [t for t in encoder.terms if t.scored]
    for gap, sources in zip(read_gaps(table), (("@minute_of_day", "@duration"), ("@duration",)), strict=True):
        rests_on_it = [encoder.schema.feature(t.feature).source[0] in sources for t in terms]
        result |= (gap > UNOBSERVED_MINUTES) & np.array([*rests_on_it, False])[driver]
    return result


def log_tails(percentiles: np.ndarray) -> np.ndarray:
    """log₁₀ of what percentiles (0 … 1) leave: 0 for nothing unusual, NaN where missing."""
    return np.log10(np.clip(1.0 - np.asarray(percentiles, float), SMALLEST_TAIL, 1.0))


def shares(tails: np.ndarray) -> np.ndarray:
    """Each column's share of the score: its −log p over the sum of all, 0 where missing. [n, columns]."""
    weight = np.where(np.isnan(tails), 0.0, -tails)
    total = weight.sum(axis=1, keepdims=True)
    return np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)


def term_labels(encoder: Encoder) -> dict[str, str]:
    """Words for the scored terms and, last, the neighbour distance."""
    labels = {t.name: encoder.schema.feature(t.feature).label for t in encoder.terms if t.scored}
    return labels | {"knn": f"unlike any {encoder.schema.event_word} seen in training"}


@dataclass(frozen=True)
class Explainer:
    """Sentences for rows of a score table."""

    encoder: Encoder

    def sentence(self, row: dict[str, Any], driver: str | None, facts: dict[str, Any] | None = None) -> str:
        """One sentence about one row; `driver` is the most unusual term, None for the neighbour distance."""
        schema = self.encoder.schema
        expected, observed, mentions = self._scene(row)
        parts = []
        if expected:
            parts.append("Expected " + " ".join(expected))
        if observed:
            parts.append("was " + " ".join(observed))
        term = next((t for t in self.encoder.terms if t.name == driver), None)
        if term is not None and term.feature not in mentions:
            parts.append(self._contrast(row, term))
        if driver is None:
            parts.append(f"unlike any {schema.event_word} seen in training")
        parts += [text for text in (self._unseen(row), self._past(facts)) if text]
        text = "; ".join(parts)
        return text[:1].upper() + text[1:] + "."

    def _scene(self, row: dict[str, Any]) -> tuple[list[str], list[str], set[str]]:
        """What, where and when, as far as the schema has them: expected words, observed words, features mentioned."""
        expected: list[str] = []
        observed: list[str] = []
        mentions: set[str] = set()
        what = self._first("category")
        if what is not None and row.get(f"expected_{what.name}") is not None:
            mentions.add(what.name)
            expected.append(str(row[f"expected_{what.name}"]))
            word = row.get(f"observed_{what.name}")
            observed.append(f"at {word}" if word not in (None, UNKNOWN) else f"at an unknown {what.label}")
        for feature in self.encoder.schema.features:
            if feature.kind == "place":
                mentions.add(feature.name)
                observed += self._away(row, feature)
        when = self._first("clock")
        if when is not None and row.get(f"expected_{when.name}") is not None:
            mentions.add(when.name)
            expected.append(f"at {self._expected(row, when, when.name)}")
            seen_at = row.get(f"observed_{when.name}")
            if seen_at is not None:
                observed.append(f"at {value_words(when, seen_at)}")
        return expected, observed, mentions

    def _first(self, display: str) -> Feature | None:
        return next((f for f in self.encoder.schema.features if f.display == display), None)

    def _away(self, row: dict[str, Any], feature: Feature) -> list[str]:
        names = [*feature.source, *(f"expected_{c}" for c in feature.source)]
        if any(row.get(n) is None for n in names):
            return []
        distance = float(haversine_km(*(row[n] for n in names)))
        return [f"{value_words(feature, distance)} away"] if distance >= 0.2 else []

    def _expected(self, row: dict[str, Any], feature: Feature, name: str) -> str:
        spread = row.get(f"spread_{name}")
        text = value_words(feature, row[f"expected_{name}"])
        return f"{text} ± {value_words(feature, spread, length=True)}" if spread is not None else text

    def _contrast(self, row: dict[str, Any], term: Term) -> str:
        """A term of its own: `stay 11 h, expected 45 min ± 20 min`."""
        feature = self.encoder.schema.feature(term.feature)
        observed, expected = row.get(f"observed_{term.name}"), row.get(f"expected_{term.name}")
        if term.kind == "vector" or observed is None or expected is None:
            return f"{feature.label} unusual"
        return f"{feature.label} {value_words(feature, observed)}, expected {self._expected(row, feature, term.name)}"

    def _unseen(self, row: dict[str, Any]) -> str:
        """What was not observed around the event, or of it."""
        when, length = self._first("clock"), self._first("duration")
        at = row.get(f"observed_{when.name}") if when is not None else None
        duration = row.get(f"observed_{length.name}") if length is not None else None
        early, late = gap_minutes(row)
        if at is not None:
            return "; ".join(unseen_words(at, math.nan if duration is None else duration, early, late))
        longest = max(early, late)
        return f"not observed for {longest:.0f} min around it" if UNOBSERVED_MINUTES < longest < math.inf else ""

    def _past(self, facts: dict[str, Any] | None) -> str:
        if not facts or not facts["days"]:
            return "" if facts is None else f"this {self.encoder.schema.entity_word} was not seen in training"
        span = f"in {facts['days']} days"
        if not facts["seen"]:
            return f"not seen there before {span}"
        often = f"seen there {facts['seen']} time{'s' if facts['seen'] > 1 else ''} {span}"
        if not facts["hour_seen"]:
            return f"{often}, not at this hour"
        return often if facts["weekday_seen"] else f"{often}, not on this day of the week"


def sentences(encoder: Encoder, table: pa.Table, tails: np.ndarray, facts: Facts | None) -> list[str]:
    """A sentence for every row of a (small) score table."""
    explainer = Explainer(encoder)
    names: list[str | None] = [t.name for t in encoder.terms if t.scored]
    names.append(None)
    driver = drivers(tails)
    return [
        explainer.sentence(row, names[driver[i]], facts.row(i) if facts is not None else None)
        for i, row in enumerate(table.to_pylist())
    ]
