"""What batch scoring makes of many events, for one: its row of the score table in plain Python numbers.

In go what the samples say about one event and its neighbour distance; out come the columns of `event_columns` and the
log₁₀ tail shares behind them. Arrays of one element cost a hundred times their arithmetic, so nothing here makes
them; a test holds it equal to the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ustad.distribution import UNSURE, Distribution
from ustad.events.encoder import UNKNOWN, EventArrays
from ustad.events.observed import DAY_MINUTES, gap_minutes, unseen_ends
from ustad.network.inference.paper_network import PaperNetwork
from ustad.network.inference.unseen_losses import is_timed, nearest
from ustad.network.live.network_step import Result
from ustad.network.network_words import DISTANCE
from ustad.schema import Term
from ustad.scoring.evidence import evidence_of_one
from ustad.scoring.paper_judge import PaperJudge
from ustad.ties import highest_of, raised

Row = dict[str, Any]


class RowJudge:
    """Rows of events of one calibrated model."""

    def __init__(self, judge: PaperJudge[PaperNetwork]) -> None:
        encoder = judge.source.encoder
        self.encoder, self.calibration, self.terms = encoder, judge.calibration, encoder.terms
        self._scored = [i for i, t in enumerate(encoder.terms) if t.scored]
        self._order = {f.name: i for i, f in enumerate(encoder.fields)}
        for kind in ("number", "category", "vector"):
            self._order |= {f"{kind}.{f.name}": i for i, f in enumerate(f for f in encoder.fields if f.kind == kind)}
        self._words = {name: (UNKNOWN, *words) for name, words in encoder.categories.items()}
        self._scales = {n: (s.centre[0], s.scale[0]) for n, s in encoder.scales.items() if len(s.scale) == 1}
        self._logs = {f.name for f in encoder.schema.features if f.transform == "log"}

    def row(self, event: Mapping[str, Any], arrays: EventArrays, result: Result, knn: float) -> tuple[Row, list[float]]:
        """Columns of the newest event of the arrays (all but alert, history and reason), and its tail shares."""
        numbers, codes, missing = (v[-1].tolist() for v in (arrays.numbers, arrays.categories, arrays.missing))
        row: Row = {}
        self._lessen(event, numbers, result)
        for term, values in zip(self.terms, result.values, strict=True):
            is_missing = any(missing[self._order[name]] for name in term.fields)
            row.update(
                getattr(self, f"_{term.kind}")(term, values, numbers, codes, is_missing=is_missing, result=result)
            )
            row |= {f"loss_{term.name}": values[2], f"au_{term.name}": values[3], f"eu_{term.name}": values[4]}
        row.update(self._places(result))
        tails = self._tails(result, knn)
        for i, tail in zip(self._scored, tails, strict=False):
            row[f"pct_{self.terms[i].name}"] = 1 - 10.0**tail
        score = max([0.0, *(-t for t in tails if t == t)])
        p_value = 10.0 ** self.calibration.score_tail.log10_tail_of(score)
        row |= {"knn": knn, "pct_knn": 1 - 10.0 ** tails[-1], "score": score, "p_value": p_value}
        row["evidence"] = self._evidence(row, tails)
        for name, at in (("uncertainty_noise", 3), ("uncertainty_model", 4)):
            parts = [result.values[i][at] for i in self._scored]
            row[name] = sum(part for part in parts if part == part)
        row["kind"] = self._kind(event, result, tails, missing)
        return {k: None if isinstance(v, float) and v != v else v for k, v in row.items()}, tails

    def _evidence(self, row: Row, tails: Sequence[float]) -> list[dict[str, Any]]:
        names = [*(self.terms[i].name for i in self._scored), "knn"]
        total = sum(-t for t in tails if t == t)
        surprise = {name: -tail for name, tail in zip(names, tails, strict=True)}
        share = {name: value / total if total > 0 else 0.0 for name, value in surprise.items()}
        numbers: dict[str, dict[str, Any]] = {"knn": {"observed": row["knn"]}}
        for name in names[:-1]:
            facts = {what: row.get(f"{what}_{name}") for what in ("expected", "observed", "spread")}
            numbers[name] = {what: value for what, value in facts.items() if isinstance(value, float)}
            numbers[name] |= {"noise": row[f"au_{name}"], "doubt": row[f"eu_{name}"]}
        return evidence_of_one(surprise, share, numbers)

    def _lessen(self, event: Mapping[str, Any], numbers: list[float], result: Result) -> None:
        """Errors and losses of a start and a duration that nobody saw, as `lessen_losses` has them in bulk."""
        early, late = (min(gap, DAY_MINUTES) for gap in gap_minutes(event))
        for term, values in zip(self.terms, result.values, strict=True):
            if (early > 0 or (late > 0 and term.kind == "number")) and is_timed(self.encoder, term):
                arguments = (np.array([v]) for v in (values[0], values[3], numbers, early, late))
                error, loss = nearest(self.encoder, term, *arguments)
                values[1], values[2] = (
                    old if old != old else min(old, float(np.float32(new[0])))
                    for old, new in ((values[1], error), (values[2], loss))
                )

    def driver(self, tails: Sequence[float]) -> int:
        """The most unusual column of the score; the last is the neighbour distance."""
        return highest_of([-t if t == t else 0.0 for t in tails])

    def lead(self, tails: Sequence[float]) -> str:
        """The question that drives the score."""
        at = self.driver(tails)
        return self.terms[self._scored[at]].name if at < len(self._scored) else DISTANCE

    # -------------------------------------------------------------------------------------- judgement
    def _tails(self, result: Result, knn: float) -> list[float]:
        losses = [result.values[i][2] for i in self._scored]
        return [_tail(t, x) for t, x in zip(self.calibration.tails, [*losses, knn], strict=True)]

    def _kind(self, event: Mapping[str, Any], result: Result, tails: list[float], missing: list[bool]) -> str:
        at = self.driver(tails)
        has_no_loss = [result.values[i][2] != result.values[i][2] for i in self._scored]
        if self._is_unobserved(event, at, has_no_loss):
            return "unobserved"
        if at == len(self._scored):
            return "novel"
        values = result.values[self._scored[at]]
        doubt = _tail(self.calibration.uncertainty_tails[at], float(np.float32(values[3]) + np.float32(values[4])))
        return "unsure" if doubt <= raised(UNSURE) else "predictable"

    def _is_unobserved(self, event: Mapping[str, Any], at: int, has_no_loss: list[bool]) -> bool:
        if has_no_loss and sum(has_no_loss) >= 0.5 * len(has_no_loss):
            return True
        if at == len(self._scored):
            return False
        source = self.encoder.schema.feature(self.terms[self._scored[at]].feature).source[0]
        start, end = unseen_ends(event)
        return (start and source in ("@minute_of_day", "@duration")) or (end and source == "@duration")

    # ------------------------------------------------------------------------------------ terms
    def _number(
        self, term: Term, values: list[float], numbers: Any, codes: Any, *, is_missing: bool, result: Result
    ) -> Row:
        name = term.name
        at = values[0]
        expected, observed = self._plain(name, at), self._plain(name, numbers[self._order[f"number.{name}"]])
        observed = math.nan if is_missing else observed
        deviation = _spread(values)
        if name in self._logs:
            spread = (self._plain(name, at + deviation) - self._plain(name, at - deviation)) / 2
        else:
            spread = deviation * (self._scales[name][1] if name in self._scales else 1.0)
        return {
            f"expected_{name}": expected,
            f"observed_{name}": observed,
            f"spread_{name}": spread,
            f"error_{name}": abs(observed - expected),
        }

    def _angle(
        self, term: Term, values: list[float], numbers: Any, codes: Any, *, is_missing: bool, result: Result
    ) -> Row:
        x, y = (numbers[self._order[f"number.{n}"]] for n in term.fields)
        period = self.encoder.schema.feature(term.feature).period
        unit = period / (2 * math.pi)
        return {
            f"expected_{term.name}": (values[0] * unit) % period,
            f"observed_{term.name}": math.nan if is_missing else (math.atan2(y, x) * unit) % period,
            f"spread_{term.name}": _spread(values) * unit,
            f"error_{term.name}": values[1] * unit,
        }

    def _category(
        self, term: Term, values: list[float], numbers: Any, codes: Any, *, is_missing: bool, result: Result
    ) -> Row:
        words, code = self._words[term.name], codes[self._order[f"category.{term.fields[0]}"]]
        return {
            f"expected_{term.name}": words[int(values[0])],
            f"observed_{term.name}": words[code],
            f"error_{term.name}": values[1],
        }

    def _vector(
        self, term: Term, values: list[float], numbers: Any, codes: Any, *, is_missing: bool, result: Result
    ) -> Row:
        expected = self.encoder.decode_vector(term.name, result.vectors[term.name])
        return {f"expected_{term.name}": expected.tolist(), f"error_{term.name}": values[1]}

    def _places(self, result: Result) -> Row:
        """`expected_lat`, `expected_lon` (named after the place's own columns)."""
        row: Row = {}
        expected = {t.name: v[0] for t, v in zip(self.terms, result.values, strict=True)}
        for feature in self.encoder.schema.features:
            if feature.kind == "place":
                x, y = (np.float64(expected[n]) for n in feature.field_names)
                degrees = self.encoder.decode_place(feature.name, x, y)  # type: ignore[arg-type]  # scalars do as well
                row |= {f"expected_{c}": float(d) for c, d in zip(feature.source, degrees, strict=True)}
        return row

    def _plain(self, name: str, value: float) -> float:
        centre, scale = self._scales.get(name, (0.0, 1.0))
        plain = value * scale + centre
        return _expm1(plain) if name in self._logs else plain


def _tail(tail: Any, value: float) -> float:
    if isinstance(tail, Distribution):
        return tail.log10_tail_of(value)
    return float(tail.log10_tail(np.array([value]))[0])


def _spread(values: list[float]) -> float:
    """As `distribution.spread_of`: one standard deviation of both uncertainties; 1 where neither is modelled."""
    total = values[3] + values[4]
    return math.sqrt(total) if total > 0 else 1.0


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700 else math.inf
