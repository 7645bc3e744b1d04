"""Losses of starts and durations that nobody saw: by the point of their interval that is nearest to what was expected.

In go what the samples say of events and how much earlier and later these may have begun and ended; out come error and
loss of the two terms, no larger than before. Events that were observed keep theirs to the bit. Departure from the
paper, which speaks of no time that nobody observed.
"""

from __future__ import annotations

import numpy as np

from ustad.events.encoder import Encoder, EventArrays
from ustad.events.observed import DAY_MINUTES
from ustad.network.inference.sampling import Samples
from ustad.schema import Term

_TURN = 2 * np.pi


def lessen_losses(samples: Samples, encoder: Encoder, arrays: EventArrays, rows: np.ndarray) -> None:
    """Change error and loss of events whose ends were not observed; `rows` [Q] are theirs in the arrays."""
    if arrays.early is None or arrays.late is None:
        return
    early, late = (np.minimum(values[rows], DAY_MINUTES).astype(np.float64) for values in (arrays.early, arrays.late))
    for term in encoder.terms:
        if term.name in samples.terms and is_timed(encoder, term):
            result = samples.terms[term.name]
            wide = np.flatnonzero((early > 0) | ((late > 0) & (term.kind == "number")))
            numbers = arrays.numbers[rows[wide]].astype(np.float64)
            expected, au = (values[wide].astype(np.float64) for values in (result.expected, result.au))
            error, loss = nearest(encoder, term, expected, au, numbers, early[wide], late[wide])
            result.error[wide] = np.fmin(result.error[wide], np.where(np.isnan(result.error[wide]), np.nan, error))
            result.loss[wide] = np.fmin(result.loss[wide], np.where(np.isnan(result.loss[wide]), np.nan, loss))


def is_timed(encoder: Encoder, term: Term) -> bool:
    """Whether a term is about the start or the duration of an event."""
    source = encoder.schema.feature(term.feature).source
    return (term.kind, source[:1]) in (("angle", ("@minute_of_day",)), ("number", ("@duration",)))


def nearest(
    encoder: Encoder,
    term: Term,
    expected: np.ndarray,
    au: np.ndarray,
    numbers: np.ndarray,
    early: np.ndarray,
    late: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Error and loss of a term at the nearest point of the intervals: values of n events, numbers [n, fields]."""
    columns = [f.name for f in encoder.fields if f.kind == "number"]
    truth = [numbers[:, columns.index(name)] for name in term.fields]
    if term.kind == "angle":
        width = early / DAY_MINUTES * _TURN
        behind = (np.arctan2(truth[1], truth[0]) - expected) % _TURN  # how far what was expected lies before the truth
        error = np.where(behind <= width, 0.0, np.minimum(behind - width, _TURN - behind))
    else:
        low = truth[0]
        high = encoder.encode_number(term.fields[0], encoder.decode_number(term.fields[0], low) + early + late)
        error = np.maximum(np.maximum(low - expected, expected - np.maximum(high, low)), 0.0)
    return error, error**2 / (2 * np.where(au > 0, au, 1.0))
