"""A window holds one entity, no later day, and every event is asked about once."""

import dataclasses

import numpy as np
import pytest
import torch
from example_stays import make_stays
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.config import WindowConfig
from ustad.events.encoder import Encoder
from ustad.events.windows import EventTensors, make_queries, make_windows
from ustad.schema import mobility_schema

SCHEMA = mobility_schema(trips="summary")


def arrays_of(seed, **kwargs):
    table = make_stays(seed, **kwargs)
    return Encoder.fit(table, SCHEMA).encode(table)


def pauses(arrays, start, stop, config):
    """How often somebody paused for longer than a session lasts, counted one by one."""
    longest = config.session_minutes * 60_000_000
    return sum(int(arrays.time[i]) - int(arrays.time[i - 1]) > longest for i in range(start + 1, stop))


windows_of = st.builds(
    WindowConfig,
    unit=st.sampled_from(["days", "events", "sessions"]),
    session_minutes=st.sampled_from([60.0, 300.0, 900.0]),
    length=st.integers(0, 4),
    mode=st.sampled_from(["day", "past"]),
    max_events=st.integers(1, 12),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), windows_of)
def test_a_window_never_holds_a_later_day_or_another_entity(seed, config):
    arrays = arrays_of(seed)
    windows = make_windows(arrays, config)
    for start, target, stop in zip(windows.start, windows.target, windows.stop, strict=True):
        assert start <= target < stop
        assert stop - start <= config.max_events
        assert len(set(arrays.entity[start:stop])) == 1
        if config.unit == "days":
            own = arrays.day[target]
            assert (arrays.day[target:stop] == own).all()
            assert (arrays.day[start:stop] >= own - config.length).all()
            assert (arrays.day[start:stop] <= own).all()
        if config.unit == "sessions":
            assert pauses(arrays, target, stop, config) == 0
            assert pauses(arrays, start, stop, config) <= config.length


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), windows_of)
def test_every_event_is_asked_about_once_within_its_rules(seed, config):
    arrays = arrays_of(seed)
    queries = make_queries(arrays, make_windows(arrays, config), config)
    assert queries.target.tolist() == list(range(len(arrays)))
    assert (queries.start <= queries.target).all()
    assert (queries.target < queries.stop).all()
    assert (queries.length <= config.max_events).all()
    assert (arrays.entity[queries.start] == arrays.entity[queries.stop - 1]).all()
    if config.mode == "past" or config.unit == "events":
        assert (queries.stop == queries.target + 1).all()
    elif config.unit == "days":
        assert (arrays.day[queries.stop - 1] == arrays.day[queries.target]).all()
    else:
        ends = zip(queries.target, queries.stop, strict=True)
        assert not any(pauses(arrays, target, stop, config) for target, stop in ends)
    if config.unit == "sessions":
        begins = zip(queries.start, queries.target, strict=True)
        assert all(pauses(arrays, start, target + 1, config) <= config.length for start, target in begins)
    elif config.unit == "days":
        assert (arrays.day[queries.target] - arrays.day[queries.start] <= config.length).all()
    else:
        assert (queries.target - queries.start <= config.length).all()


@pytest.mark.parametrize("unit", ["days", "events", "sessions"])
def test_windows_of_a_span_ask_only_about_its_days_but_see_the_days_before(unit):
    arrays = arrays_of(4, days=8)
    config = WindowConfig(unit=unit, length=3, session_minutes=600.0)
    first = int(arrays.day.min()) + 5
    windows = make_windows(arrays, config, first_day=first)
    assert (arrays.day[windows.target] >= first).all()
    assert (arrays.day[windows.start] < first).any()
    asked = make_queries(arrays, windows, config).target
    assert asked.tolist() == np.flatnonzero(arrays.day >= first).tolist()
    earlier = make_windows(arrays, config, last_day=first - 1)
    assert (arrays.day[earlier.stop - 1] < first).all()  # what is learnt from shows nothing of the weeks after


def test_the_paper_window_is_the_day_and_the_three_before():
    arrays = arrays_of(4, agents=1, days=8)
    windows = make_windows(arrays, WindowConfig(length=3))
    last = windows.take(np.array([len(windows) - 1]))
    seen = arrays.day[last.start[0] : last.stop[0]]
    day = arrays.day[last.target[0]]
    expected = np.flatnonzero((arrays.day >= day - 3) & (arrays.day <= day))
    assert len(seen) == len(expected)


def test_an_entity_with_very_many_events_in_a_day_loses_none():
    arrays = arrays_of(1, agents=1, days=1, per_day=600)
    config = WindowConfig(max_events=16)
    queries = make_queries(arrays, make_windows(arrays, config), config)
    assert queries.target.tolist() == list(range(len(arrays)))
    assert queries.length.max() <= 16


@pytest.mark.parametrize("length", [5, 9])
def test_a_batch_is_the_slice_padded_on_the_right(length):
    arrays = arrays_of(2)
    tensors = EventTensors(arrays)
    windows = make_windows(arrays, WindowConfig(length=1))
    few = windows.take(np.flatnonzero(windows.length <= length)[:7])
    batch = tensors.batch(torch.from_numpy(few.start), torch.from_numpy(few.stop), length)
    for i, (start, stop) in enumerate(zip(few.start, few.stop, strict=True)):
        n = stop - start
        assert batch.padding[i].tolist() == [False] * n + [True] * (length - n)
        assert np.array_equal(batch.features.numbers[i, :n].numpy(), arrays.numbers[start:stop])
        assert np.array_equal(batch.features.missing[i, :n].numpy(), arrays.missing[start:stop])
        days = arrays.day[start:stop]
        whole_day = [
            int((arrays.day[arrays.offsets[arrays.entity[start]] : start + k] == d).sum()) for k, d in enumerate(days)
        ]
        assert batch.day_position[i, :n].tolist() == whole_day


def test_windows_do_not_depend_on_the_order_of_rows():
    table = make_stays(9)
    encoder = Encoder.fit(table, SCHEMA)
    shuffled = table.take(np.random.default_rng(0).permutation(table.num_rows))
    a, b = encoder.encode(table), encoder.encode(shuffled)
    for field in dataclasses.fields(a):
        if field.name not in ("row", "fields"):
            assert np.array_equal(getattr(a, field.name), getattr(b, field.name)), field.name
