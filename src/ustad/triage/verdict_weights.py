"""What verdicts teach: how much each question counts in the order of alerts, learnt carefully and only when asked.

In go incidents that people judged, with the evidence of their leading event; out come weights by question. A question
whose alerts are confirmed less often than others counts less. The learnt score of an event is its score times the mean
weight of its questions, by their shares; the score itself stays as it is.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.files import read_json, write_json
from ustad.tables import DataError, first_line
from ustad.ties import descending, lowered

#: What a verdict says of an alert: worth having or not. `open` and verdicts that were taken back say nothing.
MEANINGS = {"confirmed": True, "explained": False, "expected": False, "wrong": False}
#: Verdicts that a weight of one is worth before anybody judged: a few verdicts change little.
PRIOR = 20.0
HIGHEST = 3.0
SMALLEST = 1e-300  # of p-values, so that each has a logarithm
COLUMN = "learned_score"
Evidence = Sequence[Mapping[str, Any]]


def learn_weights(evidence: Sequence[Evidence], confirmed: Sequence[bool]) -> dict[str, float]:
    """A weight for every question, 1 where nothing was learnt: between 0 and 3.

    The weight is the rate at which a question's alerts are confirmed against that of all, its share of each alert
    counting. Both have `PRIOR` verdicts of the overall rate added, so that few verdicts leave all weights near one.
    """
    verdicts = np.asarray(confirmed, float)
    if not len(verdicts) or verdicts.min() == verdicts.max():
        return {}  # nothing tells one question from another
    names = sorted({one["name"] for answers in evidence for one in answers if one["share"] > 0})
    rate = float(verdicts.mean())
    weights = {}
    for name in names:
        share = np.array([sum(one["share"] for one in answers if one["name"] == name) for answers in evidence])
        own = (share @ verdicts + PRIOR * rate) / (share.sum() + PRIOR)
        weights[name] = round(min(own / rate, HIGHEST), 4)
    return weights


def learned_score(score: float, evidence: Evidence, weights: Mapping[str, float]) -> float:
    """The learnt score of one event; its score where no question has a share.

    >>> learned_score(4.0, [{"name": "start", "share": 0.75}, {"name": "distance", "share": 0.25}], {"start": 0.5})
    2.5
    """
    shares = [(one["name"], one["share"]) for one in evidence or () if one["share"]]
    if not shares:
        return score
    return score * math.fsum(share * weights.get(name, 1.0) for name, share in shares)


def is_alert_by_weights(p_value: float, evidence: Evidence, weights: Mapping[str, float], limit: float) -> bool:
    """Whether an event is an alert by its learnt score: beyond the score that the p-value `limit` stands for.

    >>> is_alert_by_weights(1e-4, [{"name": "start", "share": 1.0}], {"start": 0.5}, 1e-3)
    False
    """
    surprise = learned_score(-math.log10(max(p_value, SMALLEST)), evidence, weights)
    return surprise >= lowered(-math.log10(limit))


def save_weights(weights: Mapping[str, float], verdicts: int, path: Path) -> None:
    write_json({"verdicts": verdicts, "weights": dict(weights)}, path)


def read_weights(path: Path) -> dict[str, float]:
    """Weights that `ustad learn` wrote, or that somebody typed."""
    if not path.exists():
        raise DataError(f"{path}: no such file; `ustad learn VERDICTS SCORES --out {path.name}` writes one")
    content = read_json(path)
    weights = content.get("weights") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(_is_weight(value) for value in weights.values()):
        raise DataError(f"{path}: expected a mapping `weights` of questions to numbers from 0 to {HIGHEST:g}")
    return {str(name): float(value) for name, value in weights.items()}


def _is_weight(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= HIGHEST


# ------------------------------------------------------------------------------------------------ tables
def learned_column(table: pa.Table, weights: Mapping[str, float]) -> np.ndarray:
    """The learnt score of every row of a score table: float64 [N]."""
    score = table["score"].to_numpy(zero_copy_only=False)
    evidence = table["evidence"].combine_chunks()
    lengths = np.nan_to_num(pc.list_value_length(evidence).to_numpy(zero_copy_only=False)).astype(np.int64)
    answers = pc.list_flatten(evidence)
    names = answers.field("name").dictionary_encode()
    factor = np.array([weights.get(name, 1.0) for name in names.dictionary.to_pylist()])
    share = np.nan_to_num(answers.field("share").to_numpy(zero_copy_only=False))
    row = np.repeat(np.arange(len(score)), lengths)
    mean = np.bincount(row, share * factor[names.indices.to_numpy()] if len(share) else share, len(score))
    return np.where(np.bincount(row, share, len(score)) > 0, score * mean, score)


def choose_alerts(score: np.ndarray, number: int) -> np.ndarray:
    """The highest so many of the leading events, of equal ones the first: bool [N]."""
    flags = np.zeros(len(score), bool)
    flags[descending(score)[:number]] = True
    return flags


def read_verdicts(path: Path) -> dict[str, bool]:
    """By incident whether people want alerts like it: the latest word of each, from a list that the page saved."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {first_line(error)}") from error
    if not rows or not {"incident_id", "verdict"} <= set(rows[0]):
        raise DataError(f"{path}: expected a CSV file with the columns incident_id and verdict, as the page saves it")
    words = {(row["incident_id"] or "").lstrip("'"): (row["verdict"] or "").strip() for row in rows}
    unknown = sorted(set(words.values()) - {*MEANINGS, "open", ""})
    if unknown:
        raise DataError(f"{path}: unknown verdict '{unknown[0]}'; known are {', '.join(MEANINGS)} and open")
    return {incident: MEANINGS[word] for incident, word in words.items() if incident and word in MEANINGS}
