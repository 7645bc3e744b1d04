"""Scores by chance: what any detector must beat. The same event gets the same score wherever it is scored."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ustad.baselines.protocol import Abilities, Scores, event_table, events_of
from ustad.schema import EventSchema, mobility_schema
from ustad.tables import agent_codes, event_keys, identity_hash, mix


class Random:
    """Uniform scores from a hash of the seed and the event (or the agent)."""

    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=True)

    def __init__(self, schema: EventSchema | None = None, seed: int = 7) -> None:
        self.schema = schema or mobility_schema()
        self.seed = seed

    def fit(self, train: Any, validation: Any = None) -> Random:
        """Learns nothing."""
        return self

    def score(self, events: Any, context: Any = None) -> Scores:
        table = events_of(events, self.schema)
        score = self._uniform(event_keys(table[self.schema.entity], table[self.schema.time]).astype(np.uint64))
        codes, values = agent_codes(table[self.schema.entity])
        agents = pa.table(
            {
                self.schema.entity: pa.array(values, table[self.schema.entity].type),
                "score": self._uniform(identity_hash(values)),
                "n_events": np.bincount(codes, minlength=len(values)),
            }
        )
        return Scores(event_table(table, self.schema, score), agents)

    def _uniform(self, keys: np.ndarray) -> np.ndarray:
        """float64 in [0, 1) of each 64-bit key."""
        salt = mix(np.array([self.seed], np.uint64))
        return (mix(keys ^ salt) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
