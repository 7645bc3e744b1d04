"""The network's words: what was observed, what was expected, how often it was before and how sure that is.

In go the columns of the score table and the facts of the history; out come the kind of every event and, for the
events somebody will look at, a sentence. Words and units come from the schema; nothing here knows of mobility.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.events.encoder import UNKNOWN, Encoder
from ustad.events.observed import UNOBSERVED_MINUTES, gap_minutes, read_gaps
from ustad.events.templates import place_words, say, say_how_sure
from ustad.events.words import times_words, unseen_words, value_words
from ustad.geo import haversine_km
from ustad.schema import Feature, Term, plural

#: The question how far an event lies from all events of training.
DISTANCE = "knn"


def find_kinds(leads: np.ndarray, about: np.ndarray, missing: Sequence[np.ndarray], table: pa.Table) -> np.ndarray:
    """`novel` where the distance leads, `unobserved` where half of the terms are missing or what leads is about an end
    that nobody saw, else None: object [n]. `missing` [K][n] says which terms have no truth."""
    kind = np.full(len(leads), None, dtype=object)
    kind[leads == DISTANCE] = "novel"
    early, late = (gap > UNOBSERVED_MINUTES for gap in read_gaps(table))
    is_unseen = (early & ((about == "start") | (about == "length"))) | (late & (about == "length"))
    kind[is_unseen | (np.mean(missing, axis=0) >= 0.5 if missing else False)] = "unobserved"
    return kind


def term_labels(encoder: Encoder) -> dict[str, str]:
    """Words for the scored terms and, last, the neighbour distance."""
    labels = {t.name: encoder.schema.feature(t.feature).label for t in encoder.terms if t.scored}
    return labels | {DISTANCE: f"unlike any {encoder.schema.event_word} seen in training"}


@dataclass(frozen=True)
class Explainer:
    """Sentences for rows of a score table."""

    encoder: Encoder

    def sentence(self, row: dict[str, Any], lead: str, facts: dict[str, Any] | None = None) -> str:
        """A reason for one row; `lead` is the most unusual question."""
        fact, usual, mentions = self._scene(row)
        term = next((t for t in self.encoder.terms if t.name == lead), None)
        leads = []
        if lead == DISTANCE:
            leads.append(say("unlike", event=self.encoder.schema.event_word))
        elif term is not None and term.feature not in mentions:
            leads += self._contrast(row, term)
        parts = [*fact, *leads, *usual, *self._past(facts), *self._sure(row, facts), *self._unseen(row)]
        return " ".join(parts)

    def _scene(self, row: dict[str, Any]) -> tuple[list[str], list[str], set[str]]:
        """What, where and when, as far as the schema has them: what happened, what was expected, features in them."""
        what, when = self._first("category"), self._first("clock")
        expected: list[str] = []
        mentions: set[str] = set()
        word = clock = None
        if what is not None and row.get(f"expected_{what.name}") is not None:
            mentions.add(what.name)
            expected.append(str(row[f"expected_{what.name}"]))
            word = row.get(f"observed_{what.name}")
            word = place_words(str(word)) if word not in (None, UNKNOWN) else f"an unknown {what.label}"
        if when is not None and row.get(f"expected_{when.name}") is not None:
            mentions.add(when.name)
            expected.append(f"at {self._expected(row, when, when.name)}")
            minute = row.get(f"observed_{when.name}")
            clock = value_words(when, minute) if minute is not None else None
        places = [f for f in self.encoder.schema.features if f.kind == "place"]
        away = [text for feature in places for text in self._away(row, feature)]
        mentions |= {feature.name for feature in places}
        fact = self._fact(word, clock)
        return fact, [say("expected", what=" ".join(expected), away="".join(away))] if expected else [], mentions

    def _fact(self, word: str | None, clock: str | None) -> list[str]:
        schema = self.encoder.schema
        if clock is None:
            return [say("somewhere", place=word)] if word is not None else []
        if word is not None and schema.end is not None:
            return [say("stay_open", place=word, clock=clock)]
        return [say("event", what=f"{schema.event_word} ({word})" if word else schema.event_word, clock=clock)]

    def _first(self, display: str) -> Feature | None:
        return next((f for f in self.encoder.schema.features if f.display == display), None)

    def _away(self, row: dict[str, Any], feature: Feature) -> list[str]:
        names = [*feature.source, *(f"expected_{c}" for c in feature.source)]
        if any(row.get(n) is None for n in names):
            return []
        distance = float(haversine_km(*(row[n] for n in names)))
        return [f", {value_words(feature, distance)} away"] if distance >= 0.2 else []

    def _expected(self, row: dict[str, Any], feature: Feature, name: str) -> str:
        spread = row.get(f"spread_{name}")
        text = value_words(feature, row[f"expected_{name}"])
        return f"{text} ± {value_words(feature, spread, length=True)}" if spread is not None else text

    def _contrast(self, row: dict[str, Any], term: Term) -> list[str]:
        """A term of its own: `Duration: 11 h.` and `Expected 45 min ± 20 min.`"""
        feature = self.encoder.schema.feature(term.feature)
        observed, expected = row.get(f"observed_{term.name}"), row.get(f"expected_{term.name}")
        if term.kind == "vector" or observed is None or expected is None:
            return [say("unusual", label=feature.label)]
        return [
            say("value", label=feature.label, value=value_words(feature, observed)),
            say("expected", what=self._expected(row, feature, term.name), away=""),
        ]

    def _unseen(self, row: dict[str, Any]) -> list[str]:
        """What was not observed around the event, or of it."""
        when, length = self._first("clock"), self._first("duration")
        at = row.get(f"observed_{when.name}") if when is not None else None
        duration = row.get(f"observed_{length.name}") if length is not None else None
        early, late = gap_minutes(row)
        if at is not None:
            ends = unseen_words(at, math.nan if duration is None else duration, early, late)
            return [say(f"unseen_{end}", span=span) for end, span in ends.items()]
        longest = max(early, late)
        return [say("around", length=f"{longest:.0f} min")] if UNOBSERVED_MINUTES < longest < math.inf else []

    def _past(self, facts: dict[str, Any] | None) -> list[str]:
        if not facts or not facts["days"]:
            return []
        days = f"{facts['days']} days"
        if not facts["seen"]:
            return [say("never", days=days)]
        but = ", never at this hour" if not facts["hour_seen"] else ""
        but = but or (", never on this day of the week" if not facts["weekday_seen"] else "")
        return [say("seen", times=times_words(facts["seen"]), days=days, but=but)]

    def _sure(self, row: dict[str, Any], facts: dict[str, Any] | None) -> list[str]:
        """The network's doubt where it is high, else how many days are known."""
        schema = self.encoder.schema
        if facts is not None and not facts["days"]:
            return [say("nothing")]
        if row.get("kind") == "unsure":
            return [say("doubt", events=plural(schema.event_word))]
        return [say_how_sure(int(facts["days"]), "days")] if facts else []
