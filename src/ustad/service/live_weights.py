"""Weights that verdicts taught, in live scoring: which alerts are raised, whatever the score, and a switch for it.

In: rows of scores with their evidence. Out: the same rows with `learned_score` beside `score`, and `alert` by it. The
score and its p-value stay as they are. The switch is kept in the store, so that a restart changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ustad.page.queries import iso
from ustad.page.store import Store, now
from ustad.scoring.evidence import read_evidence
from ustad.triage.verdict_weights import COLUMN, is_alert_by_weights, learned_score, read_weights

NAME = "learned_weights"  # what the store calls the switch


class LiveWeights:
    """Weights by question. They count from the first event on, until somebody switches them off."""

    def __init__(self, weights: Mapping[str, float], p_value: float) -> None:
        self.weights, self.p_value = dict(weights), p_value
        self.is_on, self._switch = True, threading.Lock()
        self.by = self.at = ""

    @classmethod
    def read(cls, path: Path | None, p_value: float) -> LiveWeights | None:
        return cls(read_weights(path), p_value) if path is not None else None

    def choose(self, scores: Sequence[dict[str, Any]]) -> None:
        """Decide by the learnt score whether each event is an alert."""
        for score in scores if self.is_on else ():
            evidence = read_evidence(score)
            score[COLUMN] = learned_score(score["score"], evidence, self.weights)
            score["alert"] = is_alert_by_weights(score["p_value"], evidence, self.weights, self.p_value)

    def recall(self, store: Store) -> None:
        """Stand as somebody left the switch."""
        content = store.about(NAME) or {}
        self.is_on, self.by, self.at = content.get("on", True), content.get("by", ""), content.get("at", "")

    def turn(self, store: Store, is_on: bool, by: str) -> None:
        with self._switch:
            at = iso(now())
            with store.writing() as connection:
                store.remember(connection, NAME, {"on": is_on, "by": by, "at": at})
            self.is_on, self.by, self.at = is_on, by, at
