"""Detection from true stays and from what phones record of the same people and the same red team.

One cell is a phone (or the true stays) × a method. Seeds are towns: each seed simulates other people.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import Dataset
from ustad.lab.evaluation.detection_metrics import auroc, average_precision, incident_scores
from ustad.lab.evaluation.fitted_models import FittedModels
from ustad.lab.evaluation.recordings import TRUE_STAYS
from ustad.scores import Scores
from ustad.tables import DataError, agent_codes

PRESET_METHODS = {"ustad-quick": "quick", "ustad-best": "best", "ustad-paper": "paper"}
GPS_METHODS = ("visit-rate", *PRESET_METHODS)
#: What an analyst of the demo looks at: the most unusual incidents of two weeks.
MOST_UNUSUAL = 14


def gps(models: FittedModels, phone: str, method: str, **_: Any) -> dict[str, Any]:
    """Figures of one method on one recording, and how good the recording's stays are."""
    if models.source.path is not None:
        raise DataError(f"{models.source.name}: phones record simulated people only; give a preset such as town")
    source = replace(models.source, phone=None if phone == TRUE_STAYS else phone)
    own = FittedModels(source, models.seed, models.budget, models.work, device=models.device)
    if method in PRESET_METHODS:
        scores = own.preset_scores(PRESET_METHODS[method])
    else:
        model: Any = own.fit_model(method)
        scores = model.score(own.test, own.before)
    return compare_scores(own.data, scores)


def compare_scores(data: Dataset, scores: Scores) -> dict[str, Any]:
    """Detection with what a recording missed: labelled true stays and agents that have no score count as the least
    unusual. Beside it how many of the most unusual incidents are labelled, and what was measured of the recording."""
    recording = data.meta.get("recording", {})
    result: dict[str, Any] = {"recording": recording}
    if scores.events is None or scores.agents is None:
        raise ValueError("both events and agents are compared; one of them has no scores")
    if data.labels is not None:
        result["events"] = _level(scores.events, data.labels, "stay_id", recording.get("missed", 0))
        if "started_at" in scores.events.column_names:
            wide = pa.array(incident_scores(scores.events))
            events = scores.events.set_column(scores.events.column_names.index("score"), "score", wide)
            result["incidents"] = _level(events, data.labels, "stay_id", recording.get("missed", 0))
        result["true_of_most_unusual"] = count_true(scores.events, data.labels)
    if data.agent_labels is not None:
        agents = data.agent_labels["agent_id"].cast(scores.agents["agent_id"].type)
        n_missed = pc.sum(pc.invert(pc.is_in(agents, scores.agents["agent_id"].combine_chunks()))).as_py()
        result["agents"] = _level(scores.agents, data.agent_labels, "agent_id", int(n_missed or 0))
    return result


def count_true(events: pa.Table, labels: pa.Table) -> int:
    """How many of the most unusual incidents hold a labelled stay (of the most unusual stays, where nobody says what
    belongs together)."""
    is_labelled = pc.is_in(
        events["stay_id"], labels["stay_id"].cast(events["stay_id"].type).combine_chunks()
    ).to_numpy()
    score = events["score"].to_numpy().astype(np.float64)
    if "incident_id" in events.column_names:
        alone = pc.binary_join_element_wise("", events["stay_id"].cast(pa.string()), "-")
        names = pc.coalesce(events["incident_id"], alone)
        codes = agent_codes(names)[0]
        is_labelled = np.bincount(codes, is_labelled, minlength=codes.max() + 1)[codes] > 0
        score = np.where(events["echo"].to_numpy(zero_copy_only=False), -np.inf, score)
    return int(is_labelled[np.argsort(-score, kind="stable")[:MOST_UNUSUAL]].sum())


def _level(scores: pa.Table, labels: pa.Table, name: str, n_missed: int) -> dict[str, Any]:
    """AUROC and average precision; `missed` positives stand below everything that has a score."""
    ids = labels[name].cast(scores[name].type).combine_chunks()
    truth = pc.is_in(scores[name], ids).to_numpy()
    score = scores["score"].to_numpy().astype(np.float64)
    lowest = (score.min() if len(score) else 0.0) - 1.0
    truth, score = np.r_[truth, np.ones(n_missed, bool)], np.r_[score, np.full(n_missed, lowest)]
    if truth.all() or not truth.any():
        return {"auroc": None, "ap": None, "n": len(truth), "positives": int(truth.sum()), "missed": n_missed}
    return {
        "auroc": float(auroc(truth, score)),
        "ap": float(average_precision(truth, score)),
        "n": len(truth),
        "positives": int(truth.sum()),
        "missed": n_missed,
    }
