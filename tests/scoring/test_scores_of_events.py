"""The score tables, end to end on a small town with an untrained network."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from whole_scores import score_by_habits, score_by_paper

from ustad import artefact
from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.events.visit_counts import VisitCounts
from ustad.events.words import clock_words, distance_words, minutes_words
from ustad.evidence_source import Answers, ModelContent
from ustad.judges import learn_from
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference.paper_network import PaperNetwork, scored_terms
from ustad.network.network_words import Explainer
from ustad.paper_fitting import calibrate, load_paper
from ustad.scoring.alerts import AlertRule
from ustad.scoring.judge import Request, find_kinds
from ustad.scoring.paper_judge import TENSORS, Judgement, PaperJudge
from ustad.scoring.rejection import keep_surest, parts_of_table, rejection_curve, uncertainty, withhold
from ustad.scoring.scored_parts import score_whole
from ustad.tables import DataError

FIRST_DAY = 19723
NUMBERS = ("score", "p_value", "knn", "loss_start", "loss_poi", "eu_x", "expected_duration")


def _floats(table: pa.Table, name: str) -> np.ndarray:
    return table[name].to_numpy(zero_copy_only=False).astype(float)


def _split(stays: pa.Table, day: int = FIRST_DAY + 10) -> tuple[pa.Table, pa.Table]:
    early = stays["started_at"].cast(pa.int64()).to_numpy() < day * 86_400_000_000
    return stays.filter(pa.array(early)), stays.filter(pa.array(~early))


@pytest.fixture(scope="module")
def scored(model: PaperJudge, stays: pa.Table) -> tuple[pa.Table, pa.Table]:
    context, events = _split(stays)
    return score_by_paper(model, events, context)


def _same(a: pa.Table, b: pa.Table) -> None:
    for name in NUMBERS:
        x, y = (t[name].to_numpy(zero_copy_only=False).astype(float) for t in (a, b))
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3, err_msg=name)


def test_the_tables_have_the_columns_of_the_design(scored: tuple[pa.Table, pa.Table], stays: pa.Table) -> None:
    events, agents = scored
    for term in ("start", "duration", "x", "y", "poi", "weekday"):
        for what in ("expected", "loss", "error", "au", "eu", "pct"):
            assert f"{what}_{term}" in events.column_names
    assert {*stays.column_names, "knn", "pct_knn", "score", "p_value", "alert", "kind", "reason"} <= set(
        events.column_names
    )
    assert {"incident_id", "echo"} <= set(events.column_names)
    wanted = [
        "agent_id",
        "score",
        "p_value",
        "n_events",
        "n_incidents",
        "n_alerts",
        "worst_incident_id",
        "worst_stay_id",
        "reason",
        "order_note",
    ]
    assert agents.column_names == wanted
    assert len(events) == len(_split(stays)[1])
    assert events["stay_id"].equals(_split(stays)[1]["stay_id"])


def test_agents_take_the_score_of_their_most_unusual_event(scored: tuple[pa.Table, pa.Table]) -> None:
    events, agents = scored
    score, agent, stay = (events[c].to_numpy() for c in ("score", "agent_id", "stay_id"))
    for row in agents.to_pylist():
        mine = agent == row["agent_id"]
        assert row["score"] == score[mine].max()
        assert row["n_events"] == mine.sum()
        assert row["worst_stay_id"] == stay[mine][score[mine].argmax()]
        assert row["reason"]
        assert 0 < row["p_value"] <= 1


def test_scores_do_not_depend_on_the_order_of_rows(
    model: PaperJudge, stays: pa.Table, scored: tuple[pa.Table, pa.Table]
) -> None:
    context, events = _split(stays)
    order = np.random.default_rng(0).permutation(len(events))
    shuffled, _ = score_by_paper(model, events.take(pa.array(order)), context)
    assert shuffled["stay_id"].to_pylist() == events["stay_id"].to_numpy()[order].tolist()
    _same(shuffled.take(pa.array(np.argsort(order))), scored[0])


def test_calibrated_scores_do_not_depend_on_who_else_is_scored(
    model: PaperJudge, stays: pa.Table, scored: tuple[pa.Table, pa.Table]
) -> None:
    mine = stays.filter(pa.array(stays["agent_id"].to_numpy() == 2))
    context, events = _split(mine)
    alone, _ = score_by_paper(model, events, context)
    _same(alone, scored[0].filter(pa.array(scored[0]["agent_id"].to_numpy() == 2)))


def test_context_can_be_a_first_day_instead(
    model: PaperJudge, stays: pa.Table, scored: tuple[pa.Table, pa.Table]
) -> None:
    together, _ = score_by_paper(model, stays, first_day=FIRST_DAY + 10)
    _same(together, scored[0])
    overlapping, _ = score_by_paper(model, _split(stays)[1], stays)
    _same(overlapping, scored[0])


def test_an_event_with_a_short_history_says_so(model: PaperJudge, stays: pa.Table) -> None:
    events, _ = score_by_paper(model, _split(stays)[1])
    days = events["history_days"].to_numpy()
    first = events["started_at"].cast(pa.int64()).to_numpy() // 86_400_000_000 == FIRST_DAY + 10
    assert (days[first] == 0).all()
    assert days.max() == model.source.config.window.length


def test_batch_percentiles_rank_within_the_scored_events(model: PaperJudge, stays: pa.Table) -> None:
    paper = dataclasses.replace(model, by_rank=True)
    context, events = _split(stays)
    scored, _ = score_by_paper(paper, events, context)
    loss, share = (scored[c].to_numpy(zero_copy_only=False).astype(float) for c in ("loss_x", "pct_x"))
    ranks = (loss[:, None] > loss).mean(axis=1)
    np.testing.assert_allclose(share, ranks, atol=0.01)
    order = np.argsort(scored["score"].to_numpy())
    assert (np.diff(scored["p_value"].to_numpy()[order]) <= 1e-12).all()


def test_alert_rules_flag_and_note(model: PaperJudge, stays: pa.Table) -> None:
    context, events = _split(stays)
    scores = score_whole(model, events, context, Request(AlertRule("top", 5)))
    scored, said = scores.events, scores.run
    flagged = scored.filter(scored["alert"])
    assert len(flagged) == 5
    assert flagged["reason"].null_count == 0
    assert (said["rule"], said["alerts"]) == ("top", 5)
    assert said["by_chance"] > 5  # the last of them has p > 0.05
    assert any("normal behaviour alone" in text for text in said["warnings"])


def test_intervals_and_sets_cover_their_own_reference(model: PaperJudge, stays: pa.Table) -> None:
    week, _ = _split(stays, FIRST_DAY + 9)
    scored, _ = score_by_paper(model, week, first_day=FIRST_DAY + 5, coverage=0.8)
    rows = scored.to_pylist()
    for name in ("x", "duration"):
        inside = [r[f"low_{name}"] <= r[f"observed_{name}"] <= r[f"high_{name}"] for r in rows]
        assert np.mean(inside) == pytest.approx(0.8, abs=0.03)
    known = [r["observed_poi"] in r["set_poi"] for r in rows if r["observed_poi"] != "unknown"]
    assert np.mean(known) == pytest.approx(0.8, abs=0.03)


def test_a_model_survives_storing(
    model: PaperJudge, stays: pa.Table, scored: tuple[pa.Table, pa.Table], tmp_path: Path
) -> None:
    model.save(tmp_path)
    source = model.source
    arrays = artefact.arrays(tmp_path / TENSORS)
    again = load_paper(ModelContent(tmp_path, source.encoder, source.config, "cpu", os.listdir(tmp_path), arrays))
    context, events = _split(stays)
    _same(score_by_paper(again, events, context)[0], scored[0])


@pytest.mark.parametrize(
    "changes",
    [{"scoring.neighbours": 0}, {"scoring.knn_scope": "own"}],
    ids=["none", "own"],
)
def test_neighbours_can_be_off_or_own(
    network: DualTransformer, encoder: Encoder, config: Config, stays: pa.Table, changes: dict[str, object]
) -> None:
    context, events = _split(stays)
    changed = config.replace(changes)
    made = calibrate(PaperNetwork.of_events(network, encoder, changed, context), context, FIRST_DAY + 8)
    scored, _ = score_by_paper(made, events, context)
    assert np.isfinite(scored["score"].to_numpy()).all()
    assert (scored["knn"].null_count == len(scored)) == (changes == {"scoring.neighbours": 0})


def test_missing_values_are_left_out_and_never_break_a_score(model: PaperJudge, stays: pa.Table) -> None:
    context, events = _split(stays)
    words = pa.array([None if i % 2 else "never heard of" for i in range(len(events))], pa.string())
    holes = events.set_column(events.column_names.index("poi_category"), "poi_category", words)
    lat = pa.array([None if i % 3 == 0 else v for i, v in enumerate(events["lat"].to_pylist())], pa.float64())
    holes = holes.set_column(holes.column_names.index("lat"), "lat", lat)
    scored, agents = score_by_paper(model, holes, context)
    assert np.isfinite(scored["score"].to_numpy()).all()
    assert scored["loss_poi"].null_count == len(scored)
    assert scored["pct_poi"].null_count == len(scored)
    assert scored["loss_x"].null_count == len(range(0, len(events), 3))
    assert np.isfinite(agents["p_value"].to_numpy()).all()


def test_nothing_to_score_is_a_clear_error(model: PaperJudge, stays: pa.Table) -> None:
    with pytest.raises(DataError, match="table of events is empty"):
        score_by_paper(model, stays, first_day=FIRST_DAY + 1000)


# ------------------------------------------------------------------------------------------------ reasons
def test_the_sentence_says_what_was_expected_and_what_was_seen(encoder: Encoder) -> None:
    row = {
        "expected_poi": "home", "observed_poi": "gym", "expected_start": 1090.0, "spread_start": 25.0,
        "observed_start": 160.0, "lat": 34.05, "lon": -118.25, "expected_lat": 34.05, "expected_lon": -118.70,
    }  # fmt: skip
    text = Explainer(encoder).sentence(row, "poi", {"seen": 0, "hour_seen": False, "weekday_seen": False, "days": 28})
    assert text == (
        "At a gym at 02:40. Expected home at 18:10 ± 25 min, 41 km away. Never here in 28 days. Sure: 28 days known."
    )


def test_the_driver_of_the_score_is_named(encoder: Encoder) -> None:
    row = {"expected_duration": 45.0, "observed_duration": 665.0, "spread_duration": 20.0}
    text = Explainer(encoder).sentence(row, "duration", None)
    assert text == "Stay: 11 h 5 min. Expected 45 min ± 20 min."
    assert "Unlike any known stay." in Explainer(encoder).sentence(row, "knn", None)
    known = {"seen": 4, "hour_seen": False, "weekday_seen": True, "days": 21}
    assert "Here 4 times in 21 days, never at this hour." in Explainer(encoder).sentence(row, "duration", known)


def test_kinds_follow_what_drives_the_score(encoder: Encoder) -> None:
    names = scored_terms(encoder)
    lead = names[1]  # the duration
    leads = np.array([lead, "knn", lead, lead, lead], object)
    doubts = {name: np.full(5, -0.3) for name in names}
    doubts[lead][2] = -3
    raw = {name: np.ones(5) for name in (*names, "knn")}
    for name in names[: len(names) // 2 + 1]:
        raw[name][3] = np.nan
    table = pa.table({"end_gap_s": [0.0, 0.0, 0.0, 0.0, 7200.0]})
    as_it_is = SimpleNamespace(log10_tail=lambda values: values)
    calibration = SimpleNamespace(parts=SimpleNamespace(names=names), uncertainty_tails=[as_it_is] * len(names))
    judge = PaperJudge(PaperNetwork(None, encoder, None, None), calibration)
    numbers = {name: {"noise": values, "doubt": 0.0} for name, values in doubts.items()}
    answers = Answers(raw, facts=(table, None))
    found = find_kinds((judge.source,), (answers,), leads, judge._is_unsure(leads, numbers))
    assert found.tolist() == ["predictable", "novel", "unsure", "unobserved", "unobserved"]


def test_shares_of_the_score_sum_to_one() -> None:
    surprise = {"a": np.array([1.0, np.nan]), "b": np.array([np.nan, np.nan]), "c": np.array([3.0, np.nan])}
    shares = Judgement(surprise, np.zeros(2), np.zeros(2), np.zeros(2)).shares
    np.testing.assert_allclose(np.stack(list(shares.values())).T, [[0.25, 0, 0.75], [0, 0, 0]])


def test_evidence_leads_with_what_made_the_score(model: PaperJudge, scored: tuple[pa.Table, pa.Table]) -> None:
    for row in scored[0].to_pylist():
        entries = row["evidence"]
        assert {e["name"] for e in entries} <= {*model.calibration.parts.names, "knn"}
        assert sum(e["share"] for e in entries) == pytest.approx(1)
        assert entries[0]["surprise"] == pytest.approx(row["score"])
        assert [e["share"] for e in entries] == sorted((e["share"] for e in entries), reverse=True)
        duration = next(e for e in entries if e["name"] == "duration")
        told = (duration["expected"], duration["observed"], duration["spread"])
        assert told == pytest.approx(tuple(row[f"{what}_duration"] for what in ("expected", "observed", "spread")))
        assert (duration["noise"], duration["doubt"]) == pytest.approx((row["au_duration"], row["eu_duration"]))


def test_our_judge_asks_the_paper_network_as_any_source(model: PaperJudge, stays: pa.Table) -> None:
    """Two of its questions have names that habits use too: its answers then stand for both."""
    early, late = _split(stays)
    train, week = _split(early, FIRST_DAY + 7)
    judge = learn_from(train, week, model.schema, others=(model.source,))
    scored, agents = score_by_habits(judge, late, early, reasons="all")
    alone, _ = score_by_paper(model, late, early)
    for name in ("loss_start", "au_x", "eu_poi", "knn", "expected_duration", "uncertainty_noise"):
        np.testing.assert_allclose(_floats(scored, name), _floats(alone, name), rtol=1e-6)
    questions = {entry["name"] for row in scored["evidence"].to_pylist() for entry in row}
    assert {*model.source.looks, "recurrence"} <= questions
    assert agents["reason"].null_count == 0


def test_rejection_works_on_a_score_table(model: PaperJudge, scored: tuple[pa.Table, pa.Table]) -> None:
    parts = parts_of_table(scored[0])
    total = uncertainty(parts, "standardised", model.calibration.parts)
    assert parts.names == model.calibration.parts.names
    assert np.isfinite(total).all()
    curve = rejection_curve(parts.error[:, 1], total)
    assert curve["n"].to_pylist()[-1] == len(scored[0])
    assert withhold(scored[0], keep_surest(total, 0.9))["expected_poi"].null_count == pytest.approx(
        0.1 * len(total), abs=2
    )


def test_words_are_those_of_people() -> None:
    assert clock_words(1439.9) == "00:00"
    assert [clock_words(m) for m in (0.5, 1.5, 2.5, 1439.5)] == ["00:01", "00:02", "00:03", "00:00"], "a half upwards"
    assert [minutes_words(m) for m in (0.5, 2.5, -0.5, -2.5)] == ["1 min", "3 min", "−1 min", "−3 min"]
    assert minutes_words(60) == "1 h"
    assert [minutes_words(m) for m in (0.0, 0.2, -0.2, 0.001)] == ["0 min", "12 s", "−12 s", "0 min"]
    assert distance_words(0.204) == "200 m"


# ------------------------------------------------------------------------------------------------ history
def test_history_counts_what_each_agent_did(encoder: Encoder, stays: pa.Table, tmp_path: object) -> None:
    context, events = _split(stays)
    history = VisitCounts.fit(context, encoder.schema)
    facts = history.facts(events)
    agent, place = context["agent_id"].to_numpy(), np.array(context["poi_id"].to_pylist())
    for i, row in enumerate(events.to_pylist()[:40]):
        assert facts.visits[i] == ((agent == row["agent_id"]) & (place == row["poi_id"])).sum()
        assert facts.days[i] == 10
        assert facts.hour_seen[i] or facts.visits[i] < 3
    stranger = events.set_column(1, "agent_id", pa.array(np.full(len(events), 999)))
    assert (history.facts(stranger).visits == 0).all()
    assert (history.facts(stranger).days == 0).all()


def test_history_survives_storing(encoder: Encoder, stays: pa.Table, tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "history.parquet"
    history = VisitCounts.fit(stays, encoder.schema)
    history.save(path)
    again = VisitCounts.load(path, encoder.schema)
    assert np.array_equal(again.facts(stays).visits, history.facts(stays).visits)


def test_history_without_a_habitat_column_uses_the_category(encoder: Encoder, stays: pa.Table) -> None:
    plain = stays.drop_columns(["poi_id"])
    facts = VisitCounts.fit(plain, encoder.schema).facts(plain)
    words = np.array([str(w) for w in plain["poi_category"].to_pylist()])
    known = words != "None"
    mine = plain["agent_id"].to_numpy() == 0
    assert facts.visits[known & mine & (words == "home")][0] == (mine & (words == "home")).sum()
    assert (facts.visits[~known] == 0).all()
