"""What the network expects and what was observed, term by term, in the units people use.

In go samples in network units; out come the columns of the score table: `expected_f`, `observed_f`, `spread_f`
(one standard deviation) and `error_f` in the feature's own unit (minutes, kilometres, words), `loss_f`, `au_f` and
`eu_f` in network units as in the paper, and a place's expected coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ustad.distribution import spread_of
from ustad.events.encoder import Encoder, EventArrays
from ustad.schema import Term

if TYPE_CHECKING:
    from ustad.network.inference.sampling import Samples, TermSamples

Columns = dict[str, Any]  # name → numpy array [n] (or [n, size])


def term_columns(encoder: Encoder, arrays: EventArrays, target: np.ndarray, samples: Samples) -> Columns:
    """The columns of every term for the events `target` of the arrays."""
    columns: Columns = {}
    for term in encoder.terms:
        result = samples.terms[term.name]
        natural = {"number": _number, "angle": _angle, "category": _category, "vector": _vector}[term.kind]
        columns.update(natural(encoder, arrays, target, term, result=result))
        for what in ("loss", "au", "eu"):
            columns[f"{what}_{term.name}"] = getattr(result, what)
    columns.update(_places(encoder, samples))
    return columns


def _field(arrays: EventArrays, name: str, kind: str) -> int:
    """Column of a field among the fields of its kind."""
    return [f.name for f in arrays.fields if f.kind == kind].index(name)


def _missing(arrays: EventArrays, target: np.ndarray, term: Term) -> np.ndarray:
    order = [f.name for f in arrays.fields]
    return arrays.missing[target][:, [order.index(n) for n in term.fields]].any(axis=1)


def _number(encoder: Encoder, arrays: EventArrays, target: np.ndarray, term: Term, *, result: TermSamples) -> Columns:
    name = term.name
    truth = arrays.numbers[target, _field(arrays, name, "number")].astype(np.float64)
    expected, observed = encoder.decode_number(name, result.expected), encoder.decode_number(name, truth)
    observed = np.where(_missing(arrays, target, term), np.nan, observed)
    spread = encoder.decode_spread(name, spread_of(result.au, result.eu), result.expected)
    return {
        f"expected_{name}": expected,
        f"observed_{name}": observed,
        f"spread_{name}": spread,
        f"error_{name}": np.abs(observed - expected),
    }


def _angle(encoder: Encoder, arrays: EventArrays, target: np.ndarray, term: Term, *, result: TermSamples) -> Columns:
    x, y = (arrays.numbers[target, _field(arrays, n, "number")] for n in term.fields)
    unit = encoder.schema.feature(term.feature).period / (2 * np.pi)
    observed = encoder.decode_angle(term.feature, x, y).astype(np.float64)
    return {
        f"expected_{term.name}": encoder.decode_angle(
            term.feature, np.cos(result.expected), np.sin(result.expected)
        ).astype(np.float64),
        f"observed_{term.name}": np.where(_missing(arrays, target, term), np.nan, observed),
        f"spread_{term.name}": spread_of(result.au, result.eu) * unit,
        f"error_{term.name}": result.error * unit,
    }


def _category(encoder: Encoder, arrays: EventArrays, target: np.ndarray, term: Term, *, result: TermSamples) -> Columns:
    codes = arrays.categories[target, _field(arrays, term.fields[0], "category")]
    return {
        f"expected_{term.name}": encoder.decode_category(term.name, result.expected.astype(np.int64)),
        f"observed_{term.name}": encoder.decode_category(term.name, codes),
        f"error_{term.name}": result.error,
    }


def _vector(encoder: Encoder, arrays: EventArrays, target: np.ndarray, term: Term, *, result: TermSamples) -> Columns:
    """`error_f` is the root mean square over the components, each in its own spread over training."""
    return {
        f"expected_{term.name}": encoder.decode_vector(term.name, np.asarray(result.vector)),
        f"error_{term.name}": result.error,
    }


def _places(encoder: Encoder, samples: Samples) -> Columns:
    """`expected_lat`, `expected_lon` (named after the place's own columns)."""
    columns: Columns = {}
    for feature in encoder.schema.features:
        if feature.kind == "place":
            x, y = (samples.terms[n].expected for n in feature.field_names)
            degrees = encoder.decode_place(feature.name, x, y)
            columns.update({f"expected_{c}": d for c, d in zip(feature.source, degrees, strict=True)})
    return columns


def interval_columns(encoder: Encoder, samples: Samples, radius: Mapping[str, float]) -> Columns:
    """Prediction intervals `low_f`, `high_f` (an angle wraps: low may exceed high), sets `set_f` of words, and for a
    vector the ball around `expected_f`: `radius_f`, in the unit of `error_f`, which is the distance from its centre,
    and `inside_f`, null where there is no vector. What is not scored is not calibrated and has none of these."""
    columns: Columns = {}
    for term in (term for term in encoder.terms if term.scored):
        result, reach = samples.terms[term.name], radius.get(term.name, np.inf)
        if term.kind == "number":
            half = reach * spread_of(result.au, result.eu)
            for side, sign in (("low", -1), ("high", 1)):
                columns[f"{side}_{term.name}"] = encoder.decode_number(term.name, result.expected + sign * half)
        elif term.kind == "angle":
            half = np.minimum(reach * spread_of(result.au, result.eu), np.pi * (1 - 1e-6))
            for side, sign in (("low", -1), ("high", 1)):
                angle = result.expected + sign * half
                columns[f"{side}_{term.name}"] = encoder.decode_angle(term.feature, np.cos(angle), np.sin(angle))
        elif term.kind == "category" and result.probabilities is not None:
            words = encoder.decode_category(term.name, np.arange(result.probabilities.shape[1]))
            inside = result.probabilities >= 1 - reach
            inside[:, 0] = False  # unknown is never predicted
            columns[f"set_{term.name}"] = [list(words[row]) for row in inside]
        elif term.kind == "vector":
            ball = reach * spread_of(result.au, result.eu)
            columns[f"radius_{term.name}"] = ball
            columns[f"inside_{term.name}"] = pa.array(result.error <= ball, mask=np.isnan(result.error))
    return columns


def to_arrow(columns: Columns) -> dict[str, pa.Array]:
    """Arrow arrays: NaN become null, words become text, rows of vectors become lists."""
    return {name: _arrow(values) for name, values in columns.items()}


def _arrow(values: Any) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(values.astype(np.float32).ravel())
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1]).cast(pa.list_(pa.float32()))
    if isinstance(values, np.ndarray) and values.dtype.kind in "OU":
        return pa.array(values.tolist(), pa.string())
    if isinstance(values, list):
        return pa.array(values, pa.list_(pa.string()))
    return pa.array(values, from_pandas=True)
