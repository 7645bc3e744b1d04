"""What verdicts teach: precision at five alerts a day per 1,000 people after 0, 50 and 200 verdicts.

    python benchmarks/verdicts.py                 two CPU cores, about three minutes

A simulated analyst judges the most unusual incidents of the other towns: confirmed where a stay is labelled, wrong
where not, one verdict in ten the other way round. The weights learnt from them re-order the incidents of the town that
is left. A second analyst never cares for odd hours: what the question `start` leads is wrong, labelled or not. Labels
are read only here; the seeds are development seeds. Writes benchmarks/results/verdicts.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from measured import write_result
from ustad.detector import Detector
from ustad.simulate.simulation import simulate_tables
from ustad.triage.verdict_weights import learn_weights, learned_score

SEEDS, PEOPLE, DAYS = tuple(range(101, 109)), 300, 28
VERDICTS, WRONG, A_DAY = (0, 50, 200), 0.1, 5.0
ANALYSTS = {"wants what is labelled": (), "wants no odd hours": ("start",)}
Incident = dict[str, Any]


def score_town(seed: int) -> list[Incident]:
    """The incidents of one town: score, evidence of the leading stay, whether a stay is labelled."""
    data = simulate_tables("town", agents=PEOPLE, days=DAYS, seed=seed)
    scores = Detector("quick", "cpu").fit(data).score(data, reasons="none")
    assert data.labels is not None
    assert scores.events is not None
    assert scores.incidents is not None
    truth = set(data.labels["stay_id"].to_pylist())
    evidence = dict(zip(*(scores.events[name].to_pylist() for name in ("stay_id", "evidence")), strict=True))
    return [
        {
            "score": row["score"],
            "evidence": [{k: one[k] for k in ("name", "share")} for one in evidence[row["leading_stay_id"]]],
            "labelled": bool(truth & set(row["stay_ids"])),
        }
        for row in scores.incidents.to_pylist()
    ]


def is_wanted(row: Incident, unwanted: tuple[str, ...]) -> bool:
    """Whether the analyst would want to see it."""
    leads = max(row["evidence"], key=lambda one: one["share"])["name"]
    return bool(row["labelled"]) and leads not in unwanted


def precision(town: list[Incident], weights: dict[str, float], unwanted: tuple[str, ...]) -> float:
    """Of the incidents that there is time for, the share that is wanted."""
    score = np.array([learned_score(row["score"], row["evidence"], weights) for row in town])
    number = round(A_DAY * DAYS / 2 * PEOPLE / 1000)
    return float(np.mean([is_wanted(town[i], unwanted) for i in np.argsort(-score, kind="stable")[:number]]))


def ask_analyst(towns: list[list[Incident]], number: int, seed: int, unwanted: tuple[str, ...]) -> dict[str, float]:
    """The weights after so many verdicts on the most unusual incidents of these towns."""
    chance = np.random.default_rng(seed)
    queue = sorted((row for town in towns for row in town), key=lambda row: -row["score"])[:number]
    truth = np.array([is_wanted(row, unwanted) for row in queue], bool) ^ (chance.random(len(queue)) < WRONG)
    return learn_weights([row["evidence"] for row in queue], truth.tolist())


def measure(towns: list[list[Incident]], analyst: str, number: int) -> dict[str, Any]:
    """Precision in each town after verdicts on the others, and the mean weights."""
    figures, weights = [], []
    for i, seed in enumerate(SEEDS):
        others = [town for j, town in enumerate(towns) if j != i]
        weights.append(ask_analyst(others, number, seed, ANALYSTS[analyst]))
        figures.append(round(precision(towns[i], weights[-1], ANALYSTS[analyst]), 4))
    names = sorted({name for one in weights for name in one})
    mean = {name: round(float(np.mean([one.get(name, 1.0) for one in weights])), 2) for name in names}
    result = {"analyst": analyst, "verdicts": number, "mean": round(float(np.mean(figures)), 4)}
    return result | {"precision": figures, "weights": mean}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "verdicts.json")
    out = parser.parse_args().out
    towns = [score_town(seed) for seed in SEEDS]
    rows = [measure(towns, analyst, number) for analyst in ANALYSTS for number in VERDICTS]
    for row in rows:
        print(row, flush=True)
    facts = {"people": PEOPLE, "a_day_per_1000": A_DAY, "wrong_verdicts": WRONG, "seeds": list(SEEDS)}
    write_result(out, facts | {"rows": rows})


if __name__ == "__main__":
    main()
