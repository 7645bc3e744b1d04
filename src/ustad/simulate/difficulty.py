"""How hard a labelled data set is: what counting visits alone finds.

The visit-rate score by NUMOSIM's published formula: |n_train − n_test| / √n_train per agent and place over equal
spans (n_train = 0.5 where a place is new), each stay takes the largest of itself and its two neighbours, an agent
the largest of its stays. In: a data set with labels. Out: AUROC and average precision of stays and agents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.metrics import average_precision_score, roc_auc_score

from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.tables import agent_codes


@dataclass(frozen=True)
class Difficulty:
    """What visit rate reaches; higher means easier."""

    stay_auroc: float
    stay_ap: float
    agent_auroc: float
    agent_ap: float


def visit_rate(agent: np.ndarray, place: np.ndarray, test: np.ndarray, span_ratio: float = 1.0) -> np.ndarray:
    """Scores of all rows; rows in order of agent and time. `span_ratio`: length of test over length of train."""
    _, pair = np.unique(agent * (place.max() + 1) + place, return_inverse=True)
    before = np.bincount(pair[~test], minlength=pair.max() + 1) * span_ratio
    after = np.bincount(pair[test], minlength=pair.max() + 1)
    before = np.where(before == 0, 0.5, before)
    own = (np.abs(before - after) / np.sqrt(before))[pair]
    own = np.where(test, own, 0.0)
    same = agent[1:] == agent[:-1]
    score = own.copy()
    score[1:] = np.where(same, np.maximum(score[1:], own[:-1]), score[1:])
    score[:-1] = np.where(same, np.maximum(score[:-1], own[1:]), score[:-1])
    return score


def measure(data: Dataset) -> Difficulty:
    """Visit rate on the test period of a data set with labels of stays or of agents alone."""
    split = data.split(SplitConfig())
    agent, agents = agent_codes(data.events["agent_id"])
    place, _ = agent_codes(data.events["poi_id"])
    test = data.days() >= split.test_first
    ratio = (split.test_last - split.test_first + 1) / (split.test_first - split.train_first)
    score = visit_rate(agent, place, test, ratio)
    agent_score = np.zeros(len(agents))
    np.maximum.at(agent_score, agent[test], score[test])
    agent_truth = np.zeros(len(agents), bool)
    if data.agent_labels is not None:
        agent_truth = np.isin(agents, data.agent_labels["agent_id"].to_numpy())
    truth = np.zeros(len(agent), bool)
    if data.labels is not None:
        truth = pc.is_in(data.events["stay_id"], pa.array(data.labels["stay_id"].combine_chunks())).to_numpy()
    stays, people = _figures(truth[test], score[test]), _figures(agent_truth, agent_score)
    return Difficulty(*stays, *people)


def _figures(truth: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    if not truth.any() or truth.all():
        return float("nan"), float("nan")
    return float(roc_auc_score(truth, score)), float(average_precision_score(truth, score))
