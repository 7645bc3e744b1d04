"""The preset `paper` scores a small fixed town as it always did (`paper_scores.json`), and as its equations say.

Stays and weights come from the counter, so they are the same on every machine. Run as a script, this file writes the
numbers anew, from the oracle; only a departure that docs/method.md lists is a reason to.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from paper_oracle import PaperOracle, neighbour_distance, score_by_ranks, tail_p
from test_counter import plain_draw
from whole_scores import score_by_paper

from ustad.config import Config
from ustad.dataset import event_days
from ustad.events.encoder import Encoder
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.paper_network import PaperNetwork, scored_terms
from ustad.paper_fitting import calibrate
from ustad.schema import mobility_schema
from ustad.scoring.paper_judge import PaperJudge

FILE = Path(__file__).parent / "paper_scores.json"
FIRST_DAY = 19723  # 2024-01-01, a Monday
PEOPLE, DAYS, TRAIN_DAYS = 8, 8, 4
CALIBRATION_DAYS = (4, 5)  # the two days after these are scored
CONFIG = Config.preset("paper", **{"model.width": 8, "model.heads": 2, "model.event_blocks": 2,
                                   "scoring.samples": 5, "scoring.neighbours": 4, "model.dropout": 0.2})  # fmt: skip
TRIP_SIZE = 3
KINDS = ("home", "work", "shop", "gym")


def uniform(stream: int, *place: int) -> float:
    """Between 0 and 1, by what it is for."""
    key, field, cell = (*place, 0, 0)[:3]
    return (plain_draw(key, 7, stream, 0, field, cell) >> 11) / 2**53


@cache
def make_town() -> pa.Table:
    """Four or five stays a day of each person; one in twelve of unknown kind, one in seven without a trip."""
    rows = []
    for who in range(PEOPLE):
        for day in range(DAYS):
            for nth, hour in enumerate((0, 8, 12, 18, 21)[: 4 + (who + day) % 2]):
                n = len(rows)
                start = ((FIRST_DAY + day) * 1440 + hour * 60 + int(50 * uniform(1, n))) * 60_000_000
                kind = KINDS[(0, 1, 2 + int(2 * uniform(2, n)), 1, 0)[nth]] if uniform(3, n) > 1 / 12 else None
                lat, lon = (base + 0.01 * nth + 0.01 * uniform(4, n, i) for i, base in enumerate((34.0, -118.0)))
                trips = [[3 * uniform(5 + j, n, i) for i in range(TRIP_SIZE)] if uniform(7, n) > 1 / 7 else None
                         for j in range(2)]  # fmt: skip
                end = start + int((40 + 150 * uniform(8, n)) * 60_000_000)
                rows.append((n, who, start, end, lat, lon, kind, *trips))
    moment, vector = pa.timestamp("us", tz="UTC"), pa.list_(pa.float64())
    names = [
        "stay_id",
        "agent_id",
        "started_at",
        "finished_at",
        "lat",
        "lon",
        "poi_category",
        "trip_shape",
        "trip_speed",
    ]
    kinds = [pa.int64(), pa.int64(), moment, moment, pa.float64(), pa.float64(), pa.string(), vector, vector]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(list(c), k) for c, k in zip(columns, kinds, strict=True)], names=names)


def days(first: int, last: int) -> pa.Table:
    day = event_days(make_town(), mobility_schema()) - FIRST_DAY
    return make_town().filter(pa.array((day >= first) & (day <= last)))


def set_weights(network: DualTransformer) -> None:
    """Every weight from the counter: maps keep the size of what they map, norms are near 1."""
    with torch.no_grad():
        for number, (name, values) in enumerate(sorted(network.state_dict().items())):
            draws = np.array([2 * uniform(100 + number, i) - 1 for i in range(values.numel())]).reshape(values.shape)
            if name.endswith("norm.weight") or (".norm_" in name and name.endswith("weight")):
                draws = 1 + 0.2 * draws
            elif values.dim() == 2 and "table" not in name and "position" not in name:
                draws = draws * math.sqrt(3 / values.shape[1])
            values.copy_(torch.from_numpy(draws))


@cache
def make_model() -> PaperJudge:
    model = CONFIG.model
    schema = mobility_schema(model.trips, TRIP_SIZE, model.log_duration, model.ends_seen)
    train = days(0, TRAIN_DAYS - 1)
    encoder = Encoder.fit(train, schema, model.scaling)
    network = DualTransformer(encoder.fields, model, CONFIG.window.max_events)
    set_weights(network)
    first, last = CALIBRATION_DAYS
    calibration = days(0, last)
    return calibrate(PaperNetwork.of_events(network.eval(), encoder, CONFIG, train), calibration, FIRST_DAY + first)


# ------------------------------------------------------------------------------------------- the equations
def measure_slowly(table: pa.Table, first: int) -> tuple[PaperOracle, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Of every event from day `first` on: its row in the arrays, terms by name, and its state for the neighbours."""
    model = make_model().source
    arrays = model.encoder.encode(table)
    terms = [(t.name, t.kind, t.fields) for t in model.encoder.terms if t.scored]
    weights = {name: values.numpy() for name, values in model.network.state_dict().items()}
    oracle = PaperOracle(weights, arrays, terms, CONFIG.model.heads, rate=CONFIG.model.dropout, seed=CONFIG.seed)
    rows = np.flatnonzero(arrays.day >= FIRST_DAY + first)
    length, samples = CONFIG.window.length, CONFIG.scoring.samples
    measured = [oracle.measure(int(row), length, samples) for row in rows]
    columns = {
        f"{what}_{name}": np.array([getattr(one, what)[name] for one in measured])
        for what in ("loss", "au", "eu")
        for name, _, _ in terms
    }
    states = np.stack([oracle.hidden(oracle.window(int(row), length), int(row), None) for row in rows])
    return oracle, rows, columns, states


@cache
def score_slowly() -> dict[str, dict[str, list[float]]]:
    """Events in the order of the table, and agents, by the equations."""
    k, names = CONFIG.scoring.neighbours, scored_terms(make_model().source.encoder)
    _, _, _, reference = measure_states(days(0, TRAIN_DAYS - 1))
    first, last = CALIBRATION_DAYS
    calibrating, rows, normal, states = measure_slowly(days(0, last), first)
    normal["knn"] = np.array([neighbour_distance(state, reference, k) for state in states])
    owner = calibrating.arrays.entity[rows]
    oracle, rows, events, states = measure_slowly(days(0, DAYS - 1), last + 1)
    events["knn"] = np.array([neighbour_distance(state, reference, k) for state in states])
    columns, normals = (np.stack([*(one[f"loss_{n}"] for n in names), one["knn"]], axis=1) for one in (events, normal))
    score, usual = score_by_ranks(columns, columns), score_by_ranks(normals, columns)
    log10_p = np.array([tail_p(value, usual) for value in score])
    usual_p = np.array([tail_p(value, usual) for value in usual])
    blocks = np.array([-usual_p[owner == one].min() for one in np.unique(owner)])
    who = oracle.arrays.entity[rows]
    agent_score = [score[who == one].max() for one in np.unique(who)]
    chance = [tail_p(-log10_p[who == one].min(), blocks) for one in np.unique(who)]
    spans = (DAYS - 1 - last) / (last - first + 1)
    agent_p = [1 - (1 - 10**one) ** spans for one in chance]
    order = np.argsort(oracle.arrays.row[rows])
    table = {"score": score, "p_value": 10**log10_p, **events}
    return {
        "events": {name: values[order].tolist() for name, values in table.items()},
        "agents": {"score": agent_score, "p_value": agent_p},
        "margin": {"smallest": [smallest_gap(columns, normals)]},
    }


def measure_states(train: pa.Table):
    """The states of all training events, hidden and without dropout."""
    model = make_model().source
    weights = {name: values.numpy() for name, values in model.network.state_dict().items()}
    oracle = PaperOracle(weights, model.encoder.encode(train), [], CONFIG.model.heads, rate=0.0, seed=0)
    rows = np.arange(train.num_rows)
    states = [oracle.hidden(oracle.window(int(row), CONFIG.window.length), int(row), None) for row in rows]
    return oracle, rows, {}, np.stack(states)


def smallest_gap(columns: np.ndarray, normals: np.ndarray) -> float:
    """How near two ranked values are, relative to their size: what rounding would have to reach to swap them."""
    gaps = []
    for mine, theirs in zip(columns.T, normals.T, strict=True):
        values = np.sort(np.concatenate([mine, theirs]))
        values = values[~np.isnan(values)]
        gaps.append(np.min(np.diff(values) / np.maximum(np.abs(values[1:]), 1e-3)))
    return float(min(gaps))


# ----------------------------------------------------------------------------------------------- the tests
@pytest.fixture(scope="module")
def scores() -> tuple[pa.Table, pa.Table]:
    last = CALIBRATION_DAYS[1]
    return score_by_paper(make_model(), days(last + 1, DAYS - 1), days(0, last))


@pytest.fixture(scope="module", params=["stored", "equations"])
def expected(request: pytest.FixtureRequest) -> dict[str, dict[str, list[float]]]:
    return json.loads(FILE.read_text()) if request.param == "stored" else json.loads(as_json(score_slowly()))


def as_json(content: dict[str, dict[str, list[float]]]) -> str:
    """Ten digits, NaN as null."""
    rounded = {
        name: {key: [None if math.isnan(v) else float(f"{v:.10g}") for v in values] for key, values in part.items()}
        for name, part in content.items()
    }
    lines = (f' "{name}": {{\n' + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in part.items()) + "\n }"
             for name, part in rounded.items())  # fmt: skip
    return "{\n" + ",\n".join(lines) + "\n}\n"


def column(table: pa.Table, name: str) -> np.ndarray:
    return table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)


def numbers(values: list[float | None]) -> np.ndarray:
    return np.array([math.nan if value is None else value for value in values])


@pytest.mark.parametrize("level", ["events", "agents"])
def test_scores_and_p_values_differ_by_no_more_than_a_millionth(scores, expected, level) -> None:
    table = scores[0] if level == "events" else scores[1].sort_by("agent_id")
    for name in ("score", "p_value"):
        np.testing.assert_allclose(column(table, name), numbers(expected[level][name]), rtol=1e-6, atol=1e-6)


def test_every_loss_both_uncertainties_and_the_distance_are_those_of_the_equations(scores, expected) -> None:
    names = [name for name in expected["events"] if name not in ("score", "p_value")]
    assert len(names) == 3 * 6 + 1
    for name in names:
        wanted = numbers(expected["events"][name])
        near = 1e-4 if name.startswith("eu_") else 2e-5  # a variance of float32 numbers that hardly differ
        np.testing.assert_allclose(column(scores[0], name), wanted, rtol=near, atol=1e-6, err_msg=name)


def test_what_is_stored_tells_events_apart_by_more_than_rounding() -> None:
    content = json.loads(FILE.read_text())
    assert content["margin"]["smallest"][0] > 1e-5  # no rank hangs on the last bits of float32
    events = {name: numbers(values) for name, values in content["events"].items()}
    assert len(np.unique(events["score"])) > 20
    assert np.isnan(events["loss_poi"]).any()
    assert not {"loss_trip_shape", "loss_trip_speed"} & set(events)  # inputs, in neither F_n nor F_c
    deciding = [name for name in events if name.startswith("loss_") or name == "knn"]
    highest = np.stack([np.argsort(np.argsort(np.nan_to_num(events[name], nan=-1.0))) for name in deciding])
    assert len(set(highest.argmax(0).tolist())) >= 6, "one term decides all scores"


if __name__ == "__main__":
    FILE.write_text(as_json(score_slowly()))
