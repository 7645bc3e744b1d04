"""What verdicts teach: careful weights, the same for one event as for a table, and scores that stay."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ustad.cli import app
from ustad.cli.reweigh import reweigh_alerts
from ustad.schema import mobility_schema
from ustad.tables import TIMESTAMP, DataError
from ustad.triage.verdict_weights import (
    HIGHEST,
    learn_weights,
    learned_column,
    learned_score,
    read_verdicts,
    read_weights,
)

QUESTIONS = ("start", "distance", "recurrence")
ANSWERS = st.lists(
    st.tuples(st.sampled_from(QUESTIONS), st.booleans()), min_size=0, max_size=300
).map(lambda pairs: ([[{"name": name, "share": 1.0}] for name, _ in pairs], [word for _, word in pairs]))  # fmt: skip


def of(name, number, confirmed):
    return [[{"name": name, "share": 1.0}]] * number, [True] * confirmed + [False] * (number - confirmed)


@given(ANSWERS)
def test_weights_are_never_negative_nor_above_three(answers):
    weights = learn_weights(*answers)
    assert all(0 <= weight <= HIGHEST for weight in weights.values())


@given(ANSWERS)
def test_a_question_counts_more_than_another_where_it_is_confirmed_more_often_in_as_many_alerts(answers):
    evidence, words = answers
    weights = learn_weights(evidence, words)
    named = [row[0]["name"] for row in evidence]
    for one in weights:
        for other in weights:
            if named.count(one) == named.count(other):
                yes = [sum(w for n, w in zip(named, words, strict=True) if n == q) for q in (one, other)]
                assert (weights[one] >= weights[other]) or yes[0] < yes[1]


def test_few_verdicts_change_little_and_many_change_more():
    (few, yes), (more, no) = of("distance", 3, 3), of("start", 3, 0)
    small = learn_weights([*few, *more], [*yes, *no])
    (few, yes), (more, no) = of("distance", 100, 100), of("start", 100, 0)
    large = learn_weights([*few, *more], [*yes, *no])
    assert 0.85 < small["start"] < 1 < small["distance"] < 1.15
    assert large["start"] < 0.2
    assert large["distance"] > 1.8


def test_verdicts_that_all_say_the_same_teach_nothing():
    assert learn_weights(*of("start", 50, 50)) == {}
    assert learn_weights(*of("start", 50, 0)) == {}
    assert learn_weights([], []) == {}


def make_table(n=40, seed=3):
    chance = np.random.default_rng(seed)
    share = chance.dirichlet(np.ones(3), n)
    share[::7] = 0.0
    answers = [[{"name": q, "share": float(s)} for q, s in zip(QUESTIONS, row, strict=True)] for row in share]
    time = pa.array(np.arange(n) * 86_400_000_000, pa.int64()).cast(TIMESTAMP)
    score = np.round(chance.gamma(2.0, 1.0, n), 3)
    columns = {
        "agent_id": [f"a{i}" for i in range(n)], "started_at": time, "finished_at": time, "score": score,
        "p_value": 10**-score, "echo": [i % 5 == 4 for i in range(n)], "kind": ["novel"] * n, "reason": ["."] * n,
        "incident_id": [None if i % 11 == 10 else str(i - (i % 5 == 4)) for i in range(n)],
        "alert": [i < 12 and i % 5 != 4 for i in range(n)], "evidence": answers, "lat": [60.0] * n, "lon": [25.0] * n,
    }  # fmt: skip
    return pa.table(columns)


@given(st.lists(st.floats(0, 3), min_size=3, max_size=3))
def test_a_table_is_weighed_as_its_events_one_by_one(values):
    table, weights = make_table(), dict(zip(QUESTIONS, values, strict=True))
    single = [learned_score(row["score"], row["evidence"], weights) for row in table.to_pylist()]
    np.testing.assert_allclose(learned_column(table, weights), single, rtol=1e-12)
    np.testing.assert_allclose(learned_column(table, {}), table["score"].to_numpy(), rtol=1e-12)


@pytest.fixture
def scores(tmp_path):
    import pyarrow.parquet as pq

    place = tmp_path / "scores"
    place.mkdir()
    pq.write_table(make_table(), place / "events.parquet")
    (place / "run.json").write_text(json.dumps({"alerts": 10, "warnings": []}))
    return place


def test_alerts_are_chosen_anew_and_scores_stay(scores):
    import pyarrow.parquet as pq

    before = pq.read_table(scores / "events.parquet")
    weights = {"start": 0.0, "recurrence": 2.0}
    run = reweigh_alerts(scores, weights, mobility_schema())
    after = pq.read_table(scores / "events.parquet")
    assert after["score"].equals(before["score"])
    rows = after.to_pylist()
    leaders = [row for row in rows if row["incident_id"] is not None and not row["echo"]]
    number = sum(before["alert"].to_pylist())
    lowest = sorted((row["learned_score"] for row in leaders), reverse=True)[number - 1]
    assert [row["alert"] for row in leaders] == [row["learned_score"] >= lowest for row in leaders]
    assert not any(row["alert"] for row in rows if row["echo"] or row["incident_id"] is None)
    gained = sum(a and not b for a, b in zip(after["alert"].to_pylist(), before["alert"].to_pylist(), strict=True))
    assert run["learned"] == {"weights": weights, "new": gained}


def test_the_verb_says_what_would_change_and_writes_only_when_asked(scores, tmp_path):
    rows = [row for row in make_table().to_pylist() if row["alert"]]
    leads = {row["incident_id"]: max(row["evidence"], key=lambda one: one["share"])["name"] for row in rows}
    best = sorted(leads.values())[0]
    lines = [f"{name},{'confirmed' if lead == best else 'wrong'}" for name, lead in leads.items()]
    (tmp_path / "verdicts.csv").write_text("\n".join(["incident_id,verdict", *lines, "77,open"]))
    target = tmp_path / "weights.json"
    call = ["learn", str(tmp_path / "verdicts.csv"), str(scores), "--out", str(target)]
    shown = CliRunner().invoke(app, [*call, "--preview"])
    assert shown.exit_code == 0, shown.output
    assert "would go, of the confirmed" in " ".join(shown.output.split())
    assert not target.exists()
    assert CliRunner().invoke(app, call).exit_code == 0
    weights = read_weights(target)
    assert weights[best] == max(weights.values()) > 1 > min(weights.values())


def test_bad_files_are_refused_in_one_line(tmp_path):
    for text, problem in (("a,b\n1,2\n", "incident_id and verdict"), ("incident_id,verdict\n1,maybe\n", "'maybe'")):
        (tmp_path / "v.csv").write_text(text)
        with pytest.raises(DataError, match=problem):
            read_verdicts(tmp_path / "v.csv")
    (tmp_path / "w.json").write_text('{"weights": {"start": -1}}')
    with pytest.raises(DataError, match="numbers from 0 to 3"):
        read_weights(tmp_path / "w.json")
