"""Comparisons that do not hang on the last bit: of one value as of many, wherever the values lie."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ustad.distribution import Distribution, Ranks
from ustad.ties import (
    RELATIVE,
    descending,
    first_highest,
    highest_of,
    level_ties,
    lowered,
    raised,
    rounded,
    tied_ranks,
)

ULPS = 4
plain = st.floats(-1e6, 1e6) | st.integers(-50, 50).map(lambda n: n / 7) | st.just(0.0)
steps = st.integers(-ULPS, ULPS)


def move(value, count):
    """The value so many units in the last place away."""
    for _ in range(abs(count)):
        value = math.nextafter(value, math.copysign(math.inf, count))
    return value


@st.composite
def apart(draw, least=1):
    """Values that are equal or differ by a millionth of their size at least, and each of them a few bits off."""
    different = sorted({round(v, 3) for v in draw(st.lists(st.floats(-900, 900), min_size=least, max_size=12))})
    values = draw(st.lists(st.sampled_from(different), min_size=least, max_size=40))
    return values, [move(v, draw(steps)) for v in values]


@given(plain, steps)
def test_a_value_a_few_bits_away_is_equal_and_one_a_millionth_away_is_not(value, count):
    near = move(value, count)
    assert lowered(value) <= near <= raised(value)
    step = 1e-6 * abs(value) + 1e-6
    assert value - step < lowered(value)
    assert value + step > raised(value)


@given(st.lists(plain | st.sampled_from([math.inf, -math.inf, math.nan]), min_size=1))
def test_one_value_is_moved_as_many_are(values):
    for move_by in (lowered, raised):
        for floor in (0.0, 1e-12):
            alone = [move_by(v, floor) for v in values]
            np.testing.assert_array_equal(move_by(np.array(values), floor), alone)


@given(apart(), st.data())
def test_a_rank_is_that_of_the_exact_values_whatever_the_bits_of_reference_and_value(pair, data):
    exact, noisy = pair
    right, found = Distribution.fit(np.array(exact)), Distribution.fit(np.array(noisy))
    assert found.above == right.above
    for value in (*exact, *data.draw(st.lists(st.floats(-900, 900).map(lambda v: round(v, 3)), max_size=4))):
        asked = move(value, data.draw(steps))
        counted = (1 + sum(v >= value for v in exact)) / (1 + len(exact))
        if value <= right.threshold:
            assert found.log10_tail_of(asked) == pytest.approx(math.log10(counted), abs=1e-12)
        for tail in (found.log10_tail_of(asked), float(found.log10_tail(np.array([asked, asked]))[1])):
            assert tail == pytest.approx(right.log10_tail_of(value), rel=1e-9, abs=1e-9)


@given(apart(), st.data())
def test_percentiles_within_a_batch_are_those_of_the_exact_values(pair, data):
    exact, noisy = pair
    asked = np.array([move(v, data.draw(steps)) for v in exact])
    right = Ranks.of(np.array(exact)).log10_tail(np.array(exact))
    np.testing.assert_allclose(Ranks.of(np.array(noisy)).log10_tail(asked), right, rtol=1e-12, atol=1e-12)


@given(apart())
def test_orders_and_choices_are_those_of_the_exact_values(pair):
    exact, noisy = map(np.array, pair)
    np.testing.assert_array_equal(tied_ranks(noisy), np.unique(exact, return_inverse=True)[1])
    np.testing.assert_array_equal(descending(noisy), np.argsort(-exact, kind="stable"))
    assert highest_of(noisy.tolist()) == int(np.argmax(exact))
    assert first_highest(noisy[:, None]).tolist() == [int(np.argmax(exact))]


def test_p_values_far_apart_are_not_tied_however_small_they_are():
    p_values = np.array([1e-20, 1e-15, 1e-15 * (1 + 1e-13), 3e-300])
    assert tied_ranks(p_values, floor=0.0).tolist() == [1, 2, 2, 0]


def test_missing_values_come_last_and_float32_is_never_tied():
    assert tied_ranks(np.array([np.nan, 2.0, np.inf, np.nan, -np.inf])).tolist() == [2, 1, 2, 2, 0]
    next_one = np.nextafter(np.float32(0.7), np.float32(1))
    assert next_one > raised(float(np.float32(0.7)))
    assert np.finfo(np.float32).eps / 60 > RELATIVE


@given(st.integers(1, 100_000), steps)
def test_a_number_with_few_digits_is_read_alike_whatever_its_last_bits(thousandths, count):
    assert rounded(move(thousandths / 1000, count)) == thousandths / 1000


@given(st.lists(st.one_of(st.floats(0, 5), st.just(float("nan"))), max_size=12), st.integers(0, 3))
def test_level_ties_order_exactly_as_tolerant_ranks_do(numbers, bits):
    values = np.array([*numbers, *(np.nextafter(x, np.inf) for x in numbers[:bits])])
    leveled = level_ties(values)
    known = ~np.isnan(values)
    np.testing.assert_array_equal(np.isnan(leveled), ~known)
    np.testing.assert_allclose(leveled[known], values[known], rtol=1e-7, atol=1e-9)
    ranks = tied_ranks(values[known])
    np.testing.assert_array_equal(np.unique(leveled[known], return_inverse=True)[1], ranks)
