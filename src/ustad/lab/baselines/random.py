"""Scores by chance: what any detector must beat. The same event gets the same score wherever it is scored."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ustad.lab.baselines.base import Baseline
from ustad.lab.baselines.protocol import Abilities, Scores, event_table
from ustad.tables import agent_codes, event_keys, identity_hash, mix


class Random(Baseline):
    """Uniform scores from a hash of the seed and the event (or the agent)."""

    name: ClassVar[str] = "random"
    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=True)

    needs_validation: ClassVar[bool] = False

    def score(self, events: Any, context: Any = None) -> Scores:
        """Learns nothing, so it scores without being fitted too."""
        self.fitted = True
        table, _ = self.scored_part(events, context)
        score = self._uniform(event_keys(table[self.schema.entity], table[self.schema.time]).astype(np.uint64))
        codes, values = agent_codes(table[self.schema.entity])
        agents = pa.table(
            {
                self.schema.entity: pa.array(values, table[self.schema.entity].type),
                "score": self._uniform(identity_hash(values)),
                "n_events": np.bincount(codes, minlength=len(values)),
            }
        )
        return self._scores(event_table(table, self.schema, score), agents)

    def _uniform(self, keys: np.ndarray) -> np.ndarray:
        """float64 in [0, 1) of each 64-bit key."""
        salt = mix(np.array([self.seed], np.uint64))
        return (mix(keys ^ salt) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
