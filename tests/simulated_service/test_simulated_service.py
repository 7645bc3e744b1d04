"""Days of a whole service with everything that can happen to it: acknowledged is stored once, live scores are those of
an unbroken service, forgotten is gone, no alert is told twice and none is lost.

`make simulation SEEDS=500` runs many more; each failure names its seed.
"""

from __future__ import annotations

import pytest

from simulated_service import simulate

DAYS = 4


@pytest.fixture(scope="module")
def first_digest() -> str:
    return simulate(1, DAYS).digest


def test_a_seed_runs_again_bit_for_bit(first_digest: str) -> None:
    assert simulate(1, DAYS).digest == first_digest


def test_another_seed_is_another_story(first_digest: str) -> None:
    assert simulate(2, DAYS).digest != first_digest


@pytest.mark.parametrize("seed", [12, 14])
def test_a_service_keeps_its_promises_through_kills_and_faults(seed: int) -> None:
    figures = simulate(seed, DAYS).figures
    assert figures["killed"] > 0
    assert figures["answer 503"] > 0
    assert figures["scores compared"] > 20, "too little happened to mean anything"
