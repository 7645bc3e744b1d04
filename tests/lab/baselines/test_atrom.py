"""ATROM recognises days that were disturbed, and its kinds are what they claim to be."""

import numpy as np
import pytest
import torch
from example_towns import changed, town

from ustad.lab.baselines.atrom import KINDS, Atrom, disturb, kinds_made

SETTINGS = {"width": 32, "latent": 4, "epochs": 40, "patience": 40, "batch_size": 32, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted():
    return Atrom(**SETTINGS).fit(town(agents=30), town(agents=30, days=2, first_day=8))


def test_a_day_with_a_detour_looks_less_usual(fitted):
    test = town(agents=30, days=1, first_day=10)
    score = fitted.score(test).agents["score"].to_numpy()
    detours = [fitted.score(changed(test, 4 * a + 1, lat=60.02, lon=25.4)).agents["score"].to_numpy()[a]
               for a in range(0, 30, 6)]  # fmt: skip
    assert np.median(detours) > np.quantile(score, 0.9)


def test_days_in_another_order_look_less_usual(fitted):
    test = town(agents=30, days=1, first_day=10)
    lon = test["lon"].to_numpy().reshape(-1, 4)[:, [1, 0, 2, 3]].ravel()
    lat = test["lat"].to_numpy().reshape(-1, 4)[:, [1, 0, 2, 3]].ravel()
    swapped = test.set_column(4, "lat", [lat]).set_column(5, "lon", [lon])
    assert swapped.column_names == test.column_names
    usual, score = (fitted.score(t).agents["score"].to_numpy() for t in (test, swapped))
    assert (score > usual).mean() > 0.8


def test_each_kind_disturbs_a_day_as_it_says():
    places = torch.arange(2 * 5 * 4, dtype=torch.float32).view(4, 5, 2)
    last = torch.tensor([4, 4, 2, 4])
    for kind, name in enumerate(KINDS):
        made = disturb(places, last, torch.full((4,), kind), torch.Generator().manual_seed(3))
        same = (made == places).all(-1)
        assert same[2, 3:].all(), "padding never changes"
        if name == "usual":
            assert same.all()
        elif name == "detour":
            assert ((~same).sum(1) == 1).all()
        elif name == "switch":
            first = (~same).float().argmax(1)
            assert all(not same[b, first[b] : last[b] + 1].any() for b in range(4))
        else:
            assert all(sorted(made[b, : last[b] + 1, 0]) == sorted(places[b, : last[b] + 1, 0]) for b in range(4))


def test_a_day_that_came_out_as_it_was_is_usual():
    places = torch.arange(2 * 3 * 4, dtype=torch.float32).view(4, 3, 2)
    places[1] = 5.0  # one place all day
    last, shuffle = torch.tensor([0, 2, 2, 2]), torch.full((4,), KINDS.index("shuffle"))
    made = torch.stack([places[0], places[1], places[2], places[3].flip(0)])
    assert kinds_made(shuffle, places, made).tolist() == [0, 0, 0, KINDS.index("shuffle")]
    one_place = disturb(places, last, shuffle, torch.Generator().manual_seed(3))
    assert kinds_made(shuffle, places, one_place)[:2].tolist() == [0, 0]


def test_the_probabilities_of_the_kinds_add_up_to_one(fitted):
    places, real, last = torch.randn(3, 4, 2), torch.ones(3, 4), torch.tensor([3, 3, 3])
    log_p, divergence = fitted.network(places, real, last)
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(3), atol=1e-5)
    assert (divergence >= -1e-5).all()
