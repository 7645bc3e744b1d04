"""The verdict on a claim of the paper, out of its effects.

In go signed numbers, each of a part of a claim on a data set; out comes whether they agree with the paper, and which
parts do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ustad.lab.evaluation.result_tables import ENOUGH

#: The smallest mean effect that counts: a hundredth, of whatever the effect is measured in.
LEAST = 0.01
TOO_FEW = "too few data sets"
RULE = f"""An effect is positive where it agrees with the paper. A city is run on several data sets, each with other
people, and there is an effect for each of them. It is the mean over its parts: features, kinds of injection, levels,
methods. Limits such as {LEAST:g} are ours.

- **confirmed**: in all cities with at least {ENOUGH} data sets, the mean effect is above the standard deviation of the
  effects, and at least {LEAST:g}.
- **reversed**: the same with the other sign. A claim against a limit, or about the best of several, is never reversed.
- **mixed**: confirmed or reversed as a whole, but a part goes the other way in one of these cities, by {LEAST:g} or
  more.
- **not confirmed**: none of these.
- **{TOO_FEW}**: no city has {ENOUGH} data sets.

The effects in the table are of cities with at least {ENOUGH} data sets, where there are such. A city with fewer decides
nothing; where it goes the other way, that is said. Against all deep baselines an effect is of a level: what USTAD is
ahead, less the spread over data sets."""


@dataclass(frozen=True)
class Effect:
    """One signed number: of a part of a claim (an empty name where it has none), on a data set, with a seed."""

    data: str
    seed: int | None
    part: str
    value: float


@dataclass(frozen=True)
class Claim:
    """What the paper says, what is measured for it, and the effects."""

    text: str
    measure: str
    every_effect: tuple[Effect, ...]
    limit: bool = False  # effects are distances from a limit: below it, a claim is not confirmed, but not reversed

    @property
    def is_ours(self) -> bool:
        """Whether the paper does not say it: it stands among the claims and is not counted with them."""
        return self.text.endswith("(ours)")

    @property
    def effects(self) -> tuple[float, ...]:
        """One for each data set and seed, the mean over its parts; over all seeds, one for each data set and part."""
        groups = _group(self.every_effect, lambda x: (x.data, x.part if x.seed is None else x.seed))
        return tuple(float(np.mean(values)) for values in groups.values())

    @property
    def verdict(self) -> str:
        if not self.effects:
            return "not measured"
        if not (directions := self._directions()):
            return TOO_FEW
        if not (sign := _common(directions)) or (sign < 0 and self.limit):
            return "not confirmed"
        if self._parts_against(sign):
            return "mixed"
        return "confirmed" if sign > 0 else "reversed"

    def _directions(self) -> list[int]:
        """For all data with enough data sets: 1 where effects agree with the paper, -1 where they say the opposite, 0
        where neither. Effects over all seeds have the spread in them already."""
        over_seeds = _group([x for x in self.every_effect if x.seed is None], lambda x: x.data)
        directions = [_common([_sign(value) for value in values]) for values in over_seeds.values()]
        by_set = _group([x for x in self.every_effect if x.seed is not None], lambda x: (x.data, x.seed))
        by_data: dict[str, list[float]] = {}
        for (data, _), values in by_set.items():
            by_data.setdefault(data, []).append(float(np.mean(values)))
        return directions + [_direction(np.array(v)) for v in by_data.values() if len(v) >= ENOUGH]

    @property
    def deciding_effects(self) -> np.ndarray:
        """The effects that the verdict rests on: of data with enough data sets; all where no data has."""
        deciding = [x for x in self.every_effect if x.seed is None or x.data in self._data_with_enough()]
        groups = _group(deciding or self.every_effect, lambda x: (x.data, x.part if x.seed is None else x.seed))
        return np.array([np.mean(values) for values in groups.values()])

    def _data_with_enough(self) -> set[str]:
        places = {(x.data, x.seed) for x in self.every_effect if x.seed is not None}
        return {data for data, _ in places if sum(other == data for other, _ in places) >= ENOUGH}

    def _parts_against(self, sign: int, decides: bool = True) -> dict[tuple[str, str], float]:
        """Means by part and data set of what goes the other way than the rest: of data with enough data sets or, where
        it `decides` nothing, of the others."""
        enough = self._data_with_enough()
        effects = [x for x in self.every_effect if (x.seed is None or x.data in enough) == decides]
        parts = _group(effects, lambda x: (x.part, x.data))
        means = {place: float(np.mean(values)) for place, values in sorted(parts.items())}
        return {place: mean for place, mean in means.items() if -sign * mean >= LEAST}

    @property
    def leaning(self) -> str:
        """The verdict; of a mixed claim with which way it goes as a whole."""
        if self.verdict != "mixed":
            return self.verdict
        return f"mixed, as a whole {'as the paper says' if _common(self._directions()) > 0 else 'the other way'}"

    @property
    def exceptions(self) -> str:
        """In a claim that is mixed, its mean and what goes the other way, each part with its mean on some data."""
        if self.verdict != "mixed":
            return ""
        against, mean = self._parts_against(_common(self._directions())), np.mean(self.deciding_effects)
        return f" (on average {mean:+.3f}, but {_say_parts(against)})"

    @property
    def doubts(self) -> str:
        """What goes the other way where there are too few data sets to decide."""
        if self.verdict not in ("confirmed", "reversed", "mixed"):
            return ""
        against = self._parts_against(_common(self._directions()), decides=False)
        if not against:
            return ""
        return f" (the other way where there are fewer than {ENOUGH} data sets: {_say_parts(against)})"

    @property
    def means(self) -> str:
        """Mean effects by data set, each part apart."""
        parts = _group(self.every_effect, lambda x: (x.data, x.part))
        texts: dict[str, list[str]] = {}
        for (data, part), values in parts.items():
            texts.setdefault(data, []).append(f"{part} {np.mean(values):+.3f}".strip())
        return "; ".join(f"{data}: {', '.join(own)}" for data, own in texts.items())

    @property
    def figures(self) -> str:
        if not self.effects:
            return "–"
        values, over_seeds = self.deciding_effects, all(x.seed is None for x in self.every_effect)
        spread = f" ± {values.std(ddof=1):.3f}" if len(values) >= ENOUGH and not over_seeds else ""
        of = " levels" if over_seeds else ""  # no ±: two levels are no sample, and the spread is in each of them
        return f"{values.mean():+.3f}{spread}; {int((values > 0).sum())} of {len(values)}{of} agree"


def _say_parts(means: dict[tuple[str, str], float]) -> str:
    """Parts on data, each with its mean."""
    return " · ".join(f"{part} on {data} {mean:+.3f}".strip() for (part, data), mean in means.items())


def _direction(values: np.ndarray) -> int:
    """The sign of the mean where it is beyond the standard deviation and not too small to count; 0 elsewhere."""
    mean, spread = values.mean(), values.std(ddof=1)
    return _sign(mean) if abs(mean) > spread + 1e-12 else 0


def _sign(value: float) -> int:
    """0 for what is too small to count."""
    return int(np.sign(value)) if abs(value) >= LEAST else 0


def _common(directions: Sequence[int] | np.ndarray) -> int:
    """The direction that all share; 0 where they differ."""
    return int(directions[0]) if len(set(directions)) == 1 else 0


def _group(effects: Sequence[Effect], key: Callable[[Effect], Any]) -> dict[Any, np.ndarray]:
    """Values by a key, in the order in which the keys come."""
    groups: dict[Any, list[float]] = {}
    for effect in effects:
        groups.setdefault(key(effect), []).append(effect.value)
    return {name: np.array(values) for name, values in groups.items()}


__all__ = ["LEAST", "RULE", "TOO_FEW", "Claim", "Effect"]
