"""What is learnt and what is scored are told apart by date, whatever the data comes as, and odd dates are said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad import Detector, simulate_tables
from ustad.config import Config, ConfigError, SplitConfig
from ustad.dataset import Dataset
from ustad.mobility.readers import open_data
from ustad.progress import UstadWarning
from ustad.scoring.alerts import AlertRule, refuse_everything
from ustad.tables import DataError

TINY = {"model.width": 8, "model.heads": 2, "model.event_blocks": 1, "model.trips": "none", "training.epochs": 1,
        "scoring.samples": 2, "scoring.neighbours": 5}  # fmt: skip


@pytest.fixture(scope="module")
def stays() -> pa.Table:
    """Stays that are no part of a directory: nothing says how to split them."""
    events = simulate_tables("town", agents=12, seed=3, days=14).events
    return open_data(events).events


@pytest.fixture(scope="module")
def config() -> Config:
    return Config.preset("quick").replace(TINY)


@pytest.mark.filterwarnings("ignore::ustad.progress.UstadWarning")
def test_a_table_a_path_and_a_data_set_give_the_same_scores_and_no_learnt_event_is_scored(stays, config, tmp_path):
    pq.write_table(stays, tmp_path / "stays.parquet")
    shuffled = stays.take(pa.array(np.random.default_rng(1).permutation(stays.num_rows)))
    sources = [Dataset(stays), tmp_path / "stays.parquet", stays, shuffled.to_pandas()]
    found = [Detector(config, device="cpu").fit(source).score(source).events for source in sources]
    test = Dataset(stays).split(SplitConfig()).test_first
    assert set(found[0]["stay_id"].to_pylist()) == set(Dataset(stays).between(test, 10**6)["stay_id"].to_pylist())
    for other in found[1:]:
        assert other["stay_id"].to_pylist() == found[0]["stay_id"].to_pylist()
        assert np.allclose(other["score"].to_numpy(), found[0]["score"].to_numpy(), atol=1e-9)


@pytest.mark.filterwarnings("ignore::ustad.progress.UstadWarning")
def test_data_that_was_split_by_hand_is_learnt_whole_and_scored_whole(stays, config):
    split = Dataset(stays).split(SplitConfig())
    before, after = (Dataset(stays).between(*days) for days in ((0, split.test_first - 1), (split.test_first, 10**6)))
    detector = Detector(config, device="cpu").fit(before, everything=True)
    assert detector.facts["learned_until"] == str(np.datetime64(split.test_first - 1, "D"))
    assert detector.score(after).events.num_rows == after.num_rows
    assert detector.score(after, context=before).events.num_rows == after.num_rows
    with pytest.warns(UstadWarning, match="learnt from days until"):
        detector.score(before)


def events(days_by_agent: dict[int, np.ndarray]) -> Dataset:
    """One stay of an hour at noon on each of an agent's days."""
    agent = np.repeat(list(days_by_agent), [len(d) for d in days_by_agent.values()])
    start = np.concatenate(list(days_by_agent.values())).astype("datetime64[D]").astype("datetime64[us]")
    start = pa.array(start + np.timedelta64(12, "h")).cast(pa.timestamp("us", tz="UTC"))
    n = len(agent)
    columns = {
        "agent_id": agent,
        "started_at": start,
        "finished_at": pc.add(start, pa.scalar(3_600_000_000, "duration[us]")),
    }
    return Dataset(pa.table({**columns, "lat": [1.0] * n, "lon": [1.0] * n, "timezone": ["UTC"] * n}))


@settings(max_examples=30, deadline=None)
@given(days=st.integers(3, 120), agents=st.integers(1, 6), seed=st.integers(0, 99))
def test_the_split_is_by_weeks_where_everybody_is_there_from_the_start(days, agents, seed):
    rng = np.random.default_rng(seed)
    of = {a: np.flatnonzero(rng.random(days) < 0.7) + 19_000 for a in range(agents)}
    of = {a: np.union1d(d, [19_000, 19_000 + days - 1]) for a, d in of.items()}
    scale = min(1.0, days / 56)
    split = events(of).split(SplitConfig())
    assert split.validation_first == 19_000 + max(1, round(21 * scale))
    assert split.test_first == split.validation_first + max(1, round(7 * scale))
    assert split.rule == ""


def test_people_who_join_late_are_split_by_share_and_it_is_said():
    of = {a: np.arange(19_000 + 12 * a, 19_000 + 12 * a + 50) for a in range(10)}
    split = events(of).split(SplitConfig())
    assert "2 of 10 are there in the first weeks" in split.describe()
    days = events(of).days()
    assert np.mean(days < split.validation_first) == pytest.approx(3 / 8, abs=0.01)
    assert np.mean(days < split.test_first) == pytest.approx(4 / 8, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(weeks=st.integers(25, 500), agents=st.integers(1, 5), rate=st.floats(0.3, 1.0), seed=st.integers(0, 99))
def test_of_long_data_all_but_the_last_weeks_is_learnt_from(weeks, agents, rate, seed):
    rng, days = np.random.default_rng(seed), 7 * weeks
    of = {a: np.flatnonzero(rng.random(days) < rate) + 19_000 for a in range(agents)}
    of = {a: np.union1d(d, [19_000, 19_000 + days - 32, 19_000 + days - 1]) for a, d in of.items()}
    data = events(of)
    if _days_of_nearly_all(data.days()) <= 24 * 7:  # not long without its first and last events
        return
    split = data.split(SplitConfig())
    assert (split.test_last - split.test_first + 1, split.test_first - split.validation_first) == (28, 28)
    assert f"spans {weeks} weeks" in split.describe()
    assert not split.uneven


def _days_of_nearly_all(days: np.ndarray) -> int:
    inner = np.sort(days)[len(days) // 50 : len(days) - len(days) // 50]
    return int(inner[-1] - inner[0]) + 1


def test_ten_years_of_one_person_are_learnt_from_and_said_in_one_line(capsys):
    from ustad import progress
    from ustad.periods import training_periods

    data = events({1: np.arange(16_000, 19_650)})
    progress.enable()
    try:
        periods = training_periods(data, Config())
    finally:
        progress.disable()
    assert periods.train.num_rows == 3_650 - 56
    assert periods.validation.num_rows == 28
    assert "all but the last weeks is learnt from, because the data spans 521 weeks" in capsys.readouterr().err
    until = str(np.datetime64(19_000, "D"))
    assert data.split(SplitConfig(train_until=until)).test_first == 19_001
    assert replace(data, meta={"split": {"test_first": until}}).split(SplitConfig()).test_first == 19_000


def test_of_long_data_whose_last_weeks_hold_few_people_the_last_events_are_scored():
    gone = {a: np.arange(18_000 + 30 * a, 18_400 + 30 * a) for a in range(9)}
    data = events({**gone, 9: np.arange(18_000, 19_000)})
    split = data.split(SplitConfig())
    assert split.uneven
    assert "1 of 10 are there in each part by weeks" in split.describe()
    assert np.mean(data.days() < split.test_first) == pytest.approx(7 / 8, abs=0.01)


def test_a_silence_before_the_last_weeks_leaves_no_part_without_events():
    data = events({1: np.r_[np.arange(18_000, 18_600), np.arange(18_900, 18_910)]})
    split = data.split(SplitConfig())
    days = data.days()
    assert (days < split.validation_first).any()
    assert ((days >= split.validation_first) & (days < split.test_first)).any()
    assert (days >= split.test_first).any()


def test_one_odd_clock_does_not_make_a_data_set_long():
    of = {a: np.arange(19_000, 19_042) for a in range(10)}
    for odd in (11_000, 19_900):
        split = events({**of, 0: np.sort(np.r_[odd, of[0]])}).split(SplitConfig())
        assert "all but the last weeks" not in split.describe()
        assert abs(split.test_first - 19_021) <= 7  # as without it, or by whole weeks


def test_one_odd_clock_does_not_move_the_split_of_everybody():
    of = {a: np.arange(19_000, 19_056) for a in range(10)}
    usual, odd = events(of), events({**of, 0: np.r_[11_000, of[0]]})
    assert abs(odd.split(SplitConfig()).test_first - usual.split(SplitConfig()).test_first) <= 1


def test_dates_that_are_given_decide():
    data = events({a: np.arange(19_000, 19_100) for a in range(3)})
    until, start = (str(np.datetime64(d, "D")) for d in (19_039, 19_060))
    split = data.split(SplitConfig(train_until=until))
    assert (split.validation_last, split.test_first) == (19_039, 19_040)
    assert split.validation_first == 19_030
    split = data.split(SplitConfig(train_until=until, test_from=start))
    assert (split.validation_last, split.test_first) == (19_039, 19_060)
    assert (
        replace(data, meta={"split": {"test_first": "2022-01-10"}}).split(SplitConfig(test_from=start)).test_first
        == 19_060
    )
    with pytest.raises(ConfigError, match="a date such as 2024-03-31"):
        SplitConfig(train_until="March")
    with pytest.raises(ConfigError, match="after"):
        SplitConfig(train_until=start, test_from=until)


def test_training_that_holds_few_of_the_people_is_warned_of():
    from ustad.periods import training_periods

    early = {a: np.arange(19_000, 19_056) for a in range(3)}
    late = {a: np.arange(19_040, 19_056) for a in range(3, 12)}
    data = events({**early, **late})
    with pytest.warns(UstadWarning, match=r"training holds 3 of the 12 agents"):
        training_periods(replace(data, meta={"split": {"test_first": "2022-02-08"}}), Config())


def test_alerts_that_would_be_everything_are_refused():
    with pytest.raises(DataError, match=r"27,433 of 27,433 events would be alerts.*--train-until"):
        refuse_everything(27_433, 27_433, None, 1000.0)
    with pytest.raises(DataError, match="would be alerts"):
        refuse_everything(960, 1000, AlertRule("alerts_per_day", 5), 30.0)
    refuse_everything(500, 1000, None, 30.0)
    refuse_everything(1000, 1000, AlertRule("top", 1000), 30.0)
    refuse_everything(1000, 1000, AlertRule("alerts_per_day", 1e5), 30.0)


def test_settings_of_the_extraction_travel_with_the_data_and_other_ones_are_refused():
    from ustad.periods import adopt_extraction, check_extraction

    data = replace(events({1: np.arange(19_000, 19_010)}), meta={"extraction": {"minutes": 15.0, "gap_minutes": 0.0}})
    config = adopt_extraction(Config.preset("quick"), data)
    assert (config.extraction.minutes, config.extraction.gap_minutes) == (15.0, 0.0)
    check_extraction(config, ["gap_minutes", "minutes"], data)
    other = replace(data, meta={"extraction": {"minutes": 5.0, "gap_minutes": 0.0}})
    with pytest.raises(DataError, match=r"extracted otherwise .*\(minutes 5\.0, the model's 15\.0\)"):
        check_extraction(config, ["gap_minutes", "minutes"], other)
