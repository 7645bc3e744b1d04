"""Starts and durations that nobody saw: their losses are those of the nearest time that they may have been."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from small_town import FIRST_DAY, before, since
from whole_scores import score_by_paper

from ustad.live.network_live import LiveScorer
from ustad.network.inference.unseen_losses import nearest
from ustad.paper_fitting import make_causal

TIMED = ("start", "duration")


def with_gaps(stays: pa.Table) -> pa.Table:
    rng = np.random.default_rng(2)
    early, late = (np.where(rng.random(len(stays)) < 0.6, rng.integers(0, 40_000, len(stays)), 0.0) for _ in range(2))
    return stays.append_column("start_gap_s", pa.array(early)).append_column("end_gap_s", pa.array(late))


@pytest.fixture(scope="module")
def scored(model, stays):
    causal = make_causal(model)
    week, context = since(stays, FIRST_DAY + 12), before(stays, FIRST_DAY + 12)
    return causal, with_gaps(week), context, score_by_paper(causal, week, context)[0]


def test_losses_of_unseen_times_only_fall_and_the_others_stay(scored):
    causal, week, context, whole = scored
    part = score_by_paper(causal, week, context)[0]
    gaps = [week[name].to_numpy() > 0 for name in ("start_gap_s", "end_gap_s")]
    for name in TIMED:
        plain, less = (np.array(t[f"loss_{name}"].to_pylist(), float) for t in (whole, part))
        touched = gaps[0] if name == "start" else gaps[0] | gaps[1]
        assert (less <= plain + 1e-6).all()
        assert (less[~touched] == plain[~touched]).all()
        assert (less[touched] < plain[touched]).any()
    for name in whole.column_names:
        if name.startswith("loss_") and name[5:] not in TIMED:
            assert part[name].equals(whole[name])


def test_live_losses_of_unseen_times_are_those_of_bulk(scored):
    causal, week, context, _ = scored
    wanted = {row["stay_id"]: row for row in score_by_paper(causal, week, context)[0].to_pylist()}
    live = LiveScorer(causal, neighbours="exact")
    live.warm(context)
    for row in week.to_pylist()[:12]:
        found = live.update(row)
        for name in TIMED:
            assert found[f"loss_{name}"] == pytest.approx(wanted[row["stay_id"]][f"loss_{name}"], rel=2e-4, abs=2e-4)
            assert found[f"error_{name}"] == pytest.approx(wanted[row["stay_id"]][f"error_{name}"], rel=2e-4, abs=2e-4)


def test_the_nearest_time_is_that_of_a_search(encoder):
    rng = np.random.default_rng(4)
    columns = [f.name for f in encoder.fields if f.kind == "number"]
    minute, length, early, late = (rng.uniform(0, high, 40) for high in (1440, 900, 1400, 600))
    for name in TIMED:
        term = next(t for t in encoder.terms if t.name == name)
        numbers = np.zeros((40, len(columns)))
        angle = minute / 1440 * 2 * np.pi
        for field, values in zip(term.fields, (np.cos(angle), np.sin(angle)), strict=False):
            numbers[:, columns.index(field)] = values
        if name == "duration":
            numbers[:, columns.index("duration")] = encoder.encode_number("duration", length)
        expected = rng.uniform(-3, 3, 40)
        error, loss = nearest(encoder, term, expected, np.full(40, 0.5), numbers, early, late)
        for i in range(40):
            if name == "start":
                tried = (minute[i] - np.linspace(0, early[i], 4000)) / 1440 * 2 * np.pi - expected[i]
                best = np.abs((tried + np.pi) % (2 * np.pi) - np.pi).min()
            else:
                tried = length[i] + np.linspace(0, early[i] + late[i], 4000)
                best = np.abs(encoder.encode_number("duration", tried) - expected[i]).min()
            assert error[i] == pytest.approx(best, abs=0.02)
            assert loss[i] == pytest.approx(error[i] ** 2)
