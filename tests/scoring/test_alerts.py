"""Alert rules, rejection and export."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ustad.config import ConfigError
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.scoring.alerts import (
    BINS,
    DRIFT_LIMIT,
    AlertRule,
    LeastRate,
    drift,
    drift_of_bins,
    drift_words,
    expect_by_chance,
    flag_events,
    order_by_p,
    raise_alerts,
    refuse_everything,
    report_part,
    too_small,
)
from ustad.scoring.calibration import Parts
from ustad.scoring.rejection import WITHHELD, keep_surest, rejection_curve, uncertainty, withhold
from ustad.tables import DataError
from ustad.triage.export import write_alerts_csv, write_alerts_geojson

NORMAL = np.random.default_rng(0).uniform(size=20_000)


def alerts(p: np.ndarray, scores: np.ndarray, rule: AlertRule | None = None, **known: float) -> SimpleNamespace:
    """Alerts where every event stands for itself, and which events they are."""
    flagged, found = flag_events(p, scores, np.zeros(len(p), bool), rule, **known)
    return SimpleNamespace(flagged=flagged, **vars(found))


@pytest.mark.parametrize("rate", [0.3, 5, 20])
def test_alerts_per_day_is_what_comes_whatever_the_p_values_say(rate: float) -> None:
    for p in (NORMAL, NORMAL**2, np.minimum(NORMAL * 3, 1.0)):  # honest, too small, too large
        found = alerts(p, -np.log10(p), AlertRule("alerts_per_day", rate), days=10, reference=50_000)
        assert found.flagged.sum() == 10 * rate
        assert p[found.flagged].max() <= p[~found.flagged].min()


def test_an_echo_raises_no_alert_and_makes_room_for_another() -> None:
    p = np.array([1e-6, 1e-5, 1e-4, 0.5])
    echo = np.array([False, True, False, False])
    for rule in (AlertRule("top", 2), AlertRule("alerts_per_day", 2), AlertRule(), AlertRule("fdr", 0.1)):
        assert flag_events(p, -np.log10(p), echo, rule)[0].tolist() == [True, False, True, False], rule


def test_alerts_that_chance_alone_would_raise_are_said() -> None:
    calm = np.linspace(0.02, 1, 1000)
    found = alerts(calm, -np.log10(calm), AlertRule("top", 5), reference=5000)
    assert found.by_chance > 5
    assert "normal behaviour alone would raise about" in found.warnings[0]
    odd = np.r_[np.full(5, 1e-6), calm]
    found = alerts(odd, -np.log10(odd), AlertRule("top", 5), reference=5000)
    assert found.by_chance < 0.01
    assert not found.warnings
    assert expect_by_chance(events=20, alerts=10, total=1000, threshold=0.01) == 5.0


def test_top_flags_exactly_so_many_and_the_smallest_p_values() -> None:
    found = alerts(NORMAL, -np.log10(NORMAL), AlertRule("top", 7))
    assert found.flagged.sum() == 7
    assert NORMAL[found.flagged].max() == np.sort(NORMAL)[6] == found.threshold


def test_false_discoveries_stay_below_the_rate_asked() -> None:
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(40):
        p = np.r_[rng.uniform(size=2000), rng.uniform(0, 1e-4, size=100)]
        flagged = alerts(p, -np.log10(p), AlertRule("fdr", 0.1)).flagged
        shares.append(flagged[:2000].sum() / max(1, flagged.sum()))
        assert flagged[2000:].mean() > 0.9
    assert np.mean(shares) < 0.12
    assert not alerts(np.full(50, 0.5), np.zeros(50), AlertRule("fdr", 0.05)).flagged.any()


def test_a_reference_too_small_for_the_rate_is_warned_about() -> None:
    found = alerts(NORMAL, -np.log10(NORMAL), AlertRule("alerts_per_day", 1), days=1, reference=300)
    assert "rarer than one in the 300 reference events" in found.warnings[0]


def count_so_rare(p: np.ndarray, reference: int) -> int:
    """How many are at least as rare as one in the reference, one by one."""
    return sum(1 for value in p.tolist() if value * (reference + 1) <= 1)


@pytest.mark.parametrize(("reference", "days"), [(50, 400), (300, 2_000), (2_000, 10_000)])
def test_the_least_rate_is_as_many_a_day_as_normal_events_are_that_rare(reference: int, days: int) -> None:
    """Against a count among uniform p-values, 20 a day, every one an incident of its own."""
    p = np.random.default_rng(reference).uniform(size=20 * days)
    counted = count_so_rare(p, reference)
    least = LeastRate.of(reference, events_per_day=20)
    assert abs(least.per_day * days - counted) < 4 * np.sqrt(counted)


@pytest.mark.parametrize("asked", [0.001, 0.02, 0.05, 0.06, 0.1, 1.0])
@pytest.mark.parametrize("reference", [300, 1_000])
def test_bulk_says_what_can_be_had_exactly_where_the_rate_cannot(asked: float, reference: int) -> None:
    """1,000 days of 20 normal events: as many alerts as are asked for, of which the last is rarer than the reference
    shows where fewer are asked for than events are that rare; and asking for what is advised is enough."""
    p = np.random.default_rng(5).uniform(size=20_000)
    flagged = alerts(p, -np.log10(p), AlertRule("alerts_per_day", asked), days=1_000, reference=reference)
    told = [text for text in flagged.warnings if "rarer than one in" in text]
    assert bool(told) == (round(asked * 1_000) <= count_so_rare(p, reference))
    least = LeastRate.of(reference, events_per_day=20)
    if told and not least.allows(asked):
        advised = float(told[0].split("ask for ")[1].split()[0])
        assert least.allows(advised)
        assert advised < 1.1 * least.per_day + 0.01
        assert told[0].endswith("or train on more people or weeks")


@pytest.mark.parametrize(
    ("per_day", "often", "enough"),
    [
        (0.123, "one alert in 8 days", "0.13"),
        (0.0521, "one alert in 19 days", "0.053"),
        (0.12, "one alert in 8 days", "0.12"),
        (1e-4, "one alert in 10,000 days", "0.00010"),
        (0.9, "0.9 a day", "0.90"),
        (5.31, "5.3 a day", "5.4"),
        (53.1, "53 a day", "54"),
    ],
)
def test_what_can_be_had_is_said_as_people_say_it_and_rounded_up(per_day: float, often: str, enough: str) -> None:
    text = LeastRate(1_400, per_day).words()
    assert "1,400 usual events" in text
    assert often in text
    assert f"ask for {enough} alerts a day or more" in text


def test_so_many_that_are_far_from_normal_are_no_reason_to_ask_for_more() -> None:
    """Every alert is far rarer than the reference shows, because so much is unusual, not because few were asked for."""
    p = np.r_[np.full(100, 1e-9), NORMAL[:300] / 2 + 0.5]
    (told,) = (
        text
        for text in alerts(p, -np.log10(p), AlertRule("alerts_per_day", 5), days=14, reference=300).warnings
        if "rarer than one in" in text
    )
    assert "ask for" not in told


def test_false_discoveries_beyond_the_reference_are_warned_about_and_none_at_all_are_not() -> None:
    p = np.r_[1e-7, NORMAL[:300] / 2 + 0.5]  # one event stands out by the fitted tail alone
    found = alerts(p, -np.log10(p), AlertRule("fdr", 0.05), reference=300)
    assert found.flagged.sum() == 1
    assert "fdr 0.05 ends at p ≤ 1e-07, rarer than one in the 300 reference events" in found.warnings[0]
    none = alerts(NORMAL[:300] / 2 + 0.5, np.zeros(300), AlertRule("fdr", 0.05), reference=300)
    assert not none.flagged.any()
    assert not any("rarer than" in w for w in none.warnings)


def test_drift_is_noticed_and_its_absence_too() -> None:
    assert drift(NORMAL) < 0.02
    shifted = NORMAL**2
    for rule in (AlertRule(), AlertRule("top", 5), AlertRule("fdr", 0.05), AlertRule("alerts_per_day", 20)):
        found = alerts(shifted, -np.log10(shifted), rule, reference=10_000)
        assert any("differ from the reference period" in w for w in found.warnings), rule
        alike = alerts(NORMAL, -np.log10(NORMAL), rule, reference=10_000)
        assert not any("differ from the reference period" in w for w in alike.warnings), rule


def test_rules_are_checked() -> None:
    assert AlertRule.choose(top=5) == AlertRule("top", 5)
    assert AlertRule.choose() == AlertRule()
    with pytest.raises(ConfigError, match="choose one"):
        AlertRule.choose(fdr=0.1, top=3)
    with pytest.raises(ConfigError, match="above 0"):
        AlertRule("alerts_per_day", 0)
    with pytest.raises(ConfigError, match="below 1"):
        AlertRule("fdr", 1.5)


def test_the_default_is_one_false_alarm_in_a_thousand_and_shares_end_below_one() -> None:
    assert AlertRule() == AlertRule("p_value", 0.001)
    for kind in ("fdr", "p_value"):
        with pytest.raises(ConfigError, match="below 1"):
            AlertRule(kind, 1.0)  # type: ignore[arg-type]  # one of the rules
    assert AlertRule("top", 1).most(days=5) == 1


# ------------------------------------------------------------------------------------- by plain lists
#: p-value, score, whether another event leads its incident, and which of two parts it is in; many tie.
EVENT = st.tuples(
    st.sampled_from([1e-5, 0.0005, 0.001, 0.01, 0.05, 0.2, 0.6, 1.0]), st.sampled_from([0.0, 1.0, 2.5]), st.booleans(),
    st.integers(0, 1),
)  # fmt: skip
RULES = [AlertRule(), AlertRule("p_value", 0.2), AlertRule("fdr", 0.1), AlertRule("fdr", 0.5), AlertRule("top", 3),
         AlertRule("top", 40), AlertRule("alerts_per_day", 0.3), AlertRule("alerts_per_day", 1.5)]  # fmt: skip


def listed_alerts(events: list[tuple[float, float, bool, int]], rule: AlertRule, days: float) -> tuple[set[int], float]:
    """Which events raise an alert, and up to which p-value."""
    leaders = [i for i, (_, _, echo, _) in enumerate(events) if not echo]
    p = [event[0] for event in events]
    if rule.kind in ("top", "alerts_per_day"):
        most = int(rule.value) if rule.kind == "top" else max(1, round(rule.value * max(days, 1)))
        alerting = sorted(leaders, key=lambda i: (p[i], -events[i][1], i))[:most]
        return set(alerting), max((p[i] for i in alerting), default=0.0)
    threshold = rule.value
    if rule.kind == "fdr":  # Benjamini and Hochberg: the k smallest, with the k-th at most k / n of the rate
        smallest = sorted(p[i] for i in leaders)
        passing = [x for k, x in enumerate(smallest, 1) if x <= rule.value * k / len(events) + 1e-12]
        threshold = max(passing, default=0.0)
    return {i for i in leaders if p[i] <= threshold}, threshold


@settings(max_examples=150, deadline=None)
@given(events=st.lists(EVENT, min_size=1, max_size=25), rule=st.sampled_from(RULES), days=st.sampled_from([0.5, 1, 4]))
def test_alerts_of_any_parts_are_those_of_one_plain_list(
    events: list[tuple[float, float, bool, int]], rule: AlertRule, days: float
) -> None:
    p, scores, echo, part = (np.array(column) for column in zip(*events, strict=True))
    expected, threshold = listed_alerts(events, rule, days)
    up_to = sum(x <= threshold for x in p)
    by_chance = len(p) * threshold * (len(expected) / up_to if up_to else 1.0)
    flagged, whole = flag_events(p, scores, echo, rule, days=days)
    assert set(np.flatnonzero(flagged)) == expected
    assert (whole.count, whole.threshold) == (len(expected), threshold)
    assert whole.by_chance == pytest.approx(by_chance)

    rows = {str(n): np.flatnonzero(part == n) for n in (0, 1)}
    reports = {
        n: report_part(p[r], scores[r], echo[r], np.arange(len(r)), rule=rule, days=days) for n, r in rows.items()
    }
    split = raise_alerts(rule, reports, days, reference=0, rank=lambda name, row: int(rows[name][row]))
    again = [rows[n][split.flags(n, p[r], echo[r])] for n, r in rows.items()]
    assert set(np.concatenate(again)) == expected
    assert (split.count, split.threshold, split.by_chance) == (whole.count, whole.threshold, whole.by_chance)


@pytest.mark.parametrize(
    ("flagged", "events", "rule", "days", "refused"),
    [
        (45, 50, None, 1, True), (44, 50, None, 1, False), (49, 49, None, 1, False),
        (50, 50, AlertRule("p_value", 0.44), 1, True), (50, 50, AlertRule("p_value", 0.45), 1, False),
        (50, 50, AlertRule("fdr", 0.9), 1, True), (50, 50, AlertRule("top", 50), 1, False),
        (50, 50, AlertRule("alerts_per_day", 2), 11, True), (50, 50, AlertRule("alerts_per_day", 2), 12, False),
    ],
)  # fmt: skip
def test_nearly_all_events_are_refused_as_alerts_where_far_fewer_were_asked_for(
    flagged: int, events: int, rule: AlertRule | None, days: float, refused: bool
) -> None:
    if refused:
        with pytest.raises(DataError, match=f"{flagged} of {events} events would be alerts"):
            refuse_everything(flagged, events, rule, days)
    else:
        refuse_everything(flagged, events, rule, days)


def test_events_that_tie_come_in_the_order_that_is_given() -> None:
    same = np.full(4, 0.01)
    order = np.array([2, 0, 3, 1])
    assert order_by_p(same, same, order).tolist() == [1, 3, 0, 2]
    assert order_by_p(same, same).tolist() == [0, 1, 2, 3]
    flagged, _ = flag_events(same, same, np.zeros(4, bool), AlertRule("top", 1), order=order)
    assert flagged.tolist() == [False, True, False, False]


def test_drift_is_the_distance_of_kolmogorov_and_smirnov() -> None:
    for p in (NORMAL[:40], NORMAL[:40] ** 3, np.sqrt(NORMAL[:40]), np.array([0.9])):
        assert drift(p) == pytest.approx(stats.kstest(p, "uniform").statistic)
        counts = np.histogram(p, bins=BINS, range=(0, 1))[0]
        assert drift_of_bins(counts) == pytest.approx(drift(p), abs=1.5 / BINS)
    assert drift_words(DRIFT_LIMIT) == []
    assert drift_words(DRIFT_LIMIT + 1e-6) != []


def test_ninety_nine_events_say_nothing_of_drift_and_a_hundred_do() -> None:
    for count, says in ((99, False), (100, True)):
        p = np.full(count, 0.01)
        assert any("differ from" in w for w in alerts(p, -np.log10(p), reference=1000).warnings) is says


def test_a_threshold_is_too_small_below_one_in_as_many_as_there_are_and_one_more() -> None:
    least = LeastRate.of(9, events_per_day=100)
    assert too_small(0.1, AlertRule(), least) == []
    assert too_small(0.0999, AlertRule(), least) != []
    assert too_small(0.0, AlertRule(), least) == []
    assert too_small(0.0999, AlertRule(), None) == []
    assert expect_by_chance(events=0, alerts=0, total=1000, threshold=0.01) == 10.0


def test_nothing_scored_means_nothing_flagged() -> None:
    nothing = alerts(np.zeros(0), np.zeros(0))
    assert (len(nothing.flagged), nothing.threshold, nothing.count, nothing.by_chance) == (0, 0.0, 0, 0.0)


# ---------------------------------------------------------------------------------------------- rejection
def _parts() -> Parts:
    rng = np.random.default_rng(2)
    au = rng.uniform(0.1, 4, (3000, 2)) * [1, 50]  # the second term swamps the first
    error = np.abs(rng.normal(size=(3000, 2))) * np.sqrt(au)
    return Parts(("a", "b"), error, error, au, np.zeros_like(au), np.zeros(3000))


def test_curves_do_not_depend_on_the_order_of_equally_certain_events() -> None:
    generator = np.random.default_rng(3)
    errors, total = generator.random(60), np.repeat([1.0, 2.0, 3.0], 20)
    order = generator.permutation(60)
    curve = rejection_curve(errors, total)["error"].to_numpy()
    np.testing.assert_allclose(rejection_curve(errors[order], total[order])["error"].to_numpy(), curve, rtol=1e-12)
    assert curve[5] == pytest.approx(errors[:20].mean())  # 18 of the surest twenty stand for all of them
    assert curve[-1] == pytest.approx(errors.mean())


def test_error_falls_as_the_unsure_are_rejected() -> None:
    parts = _parts()
    curve = rejection_curve(parts.error[:, 0], uncertainty(parts, "standardised"), np.array([0.2, 0.5, 1.0]))
    errors = curve["error"].to_pylist()
    assert errors[0] < errors[1] < errors[2]
    assert errors[2] == pytest.approx(parts.error[:, 0].mean())
    assert curve["n"].to_pylist() == [600, 1500, 3000]


def test_standardising_stops_one_term_from_swamping_the_rest() -> None:
    parts = _parts()
    plain, fair = (np.corrcoef(uncertainty(parts, how), parts.au[:, 0])[0, 1] for how in ("sum", "standardised"))
    assert fair > 5 * abs(plain)


def test_withheld_predictions_are_empty() -> None:
    table = pa.table({"expected_x": [1.0, 2.0, 3.0], "score": [0.1, 0.2, 0.3], "expected_w": ["a", "b", "c"]})
    keep = keep_surest(np.array([0.1, 5.0, 0.2]), 0.67)
    shown = withhold(table, keep)
    assert shown["expected_x"].to_pylist() == [1.0, None, 3.0]
    assert shown["expected_w"].to_pylist() == ["a", None, "c"]
    assert shown["withheld"].to_pylist() == [False, True, False]
    assert shown["score"].to_pylist() == [0.1, 0.2, 0.3]
    with pytest.raises(ValueError, match="share must be"):
        keep_surest(np.array([1.0]), 0.0)


def test_the_reason_of_a_withheld_event_does_not_say_what_was_expected() -> None:
    said = ["At a gym at 02:40. Usually at home at this hour (9 of 9 weekdays)."] * 2 + [None]
    table = pa.table({"pct_x": [0.2, 0.9, 0.9], "pct_knn": [0.99, None, 0.1], "reason": said})
    shown = withhold(table, np.array([True, False, False]), {"x": "place"})["reason"].to_pylist()
    assert shown == [said[0], f"{WITHHELD}; most unusual: place.", None]


# ------------------------------------------------------------------------------------------------- export
def _scored() -> pa.Table:
    time = pa.array([0, 60_000_000, 120_000_000], pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "agent_id": [1, 2, 3],
            "started_at": time,
            "lat": [1.5, None, 3.5],
            "lon": [2.5, 2.0, 4.5],
            "score": [1.0, 3.0, 2.0],
            "alert": [False, True, True],
            "set_poi": [["a"], ["b"], []],
            "reason": [None, "Not seen before.", "Far away."],
        }
    )


def test_alerts_export_as_csv_worst_first(tmp_path: Path) -> None:
    assert write_alerts_csv(_scored(), tmp_path / "alerts.csv") == 2
    back = pa_csv.read_csv(tmp_path / "alerts.csv")
    assert back["agent_id"].to_pylist() == [2, 3]
    assert "set_poi" not in back.column_names


def test_alerts_export_as_geojson(tmp_path: Path) -> None:
    assert write_alerts_geojson(_scored(), mobility_schema(), tmp_path / "alerts.geojson") == 2
    content = json.loads((tmp_path / "alerts.geojson").read_text())
    missing, present = content["features"]
    assert missing["geometry"] is None
    assert present["geometry"] == {"type": "Point", "coordinates": [4.5, 3.5]}
    assert present["properties"]["started_at"].startswith("1970-01-01T00:02:00")


def test_events_without_a_place_have_no_geojson(tmp_path: Path) -> None:
    cards = EventSchema("cards", (Feature("amount", "numeric"),))
    with pytest.raises(DataError, match="no place"):
        write_alerts_geojson(_scored(), cards, tmp_path / "x.geojson")


def test_columns_of_the_users_own_stay_where_predictions_are_withheld() -> None:
    columns = {"expected_x": [1.0], "low_x": [0.5], "set_x": ["a"], "error_trip": [1.0], "radius_trip": [2.0]}
    own = {"set_id": [7], "high_risk": [True], "radius_m": [30.0], "low_battery": [False]}
    shown = withhold(pa.table({**columns, **own}), np.array([False])).to_pylist()[0]
    assert [shown[name] for name in ("expected_x", "low_x", "set_x", "radius_trip")] == [None] * 4
    assert {name: [shown[name]] for name in own} == own
