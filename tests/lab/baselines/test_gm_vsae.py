"""GM-VSAE gives a path from another cluster a lower likelihood."""

import math

import numpy as np
import pytest
import torch
from example_towns import DAY, HOUR, MONDAY, changed, stays

from ustad.lab.baselines.gm_vsae import GmVsae, GmVsaeSettings, RouteMixture
from ustad.lab.baselines.trajectory_grid import agent_days

NORTH = [(60.00, 25.0), (60.03, 25.0), (60.06, 25.0)]
SOUTH = [(59.70, 25.0), (59.67, 25.0), (59.64, 25.0)]
SETTINGS = {"width": 32, "latent": 4, "clusters": 2, "epochs": 40, "patience": 40, "batch_size": 32, "device": "cpu"}


def routes(agents: int, days: int, first_day: int = 0):
    """Agents with even numbers go north, the others south, over the same three places every day."""
    rows = []
    for agent in range(agents):
        for day in range(first_day, first_day + days):
            for i, (lat, lon) in enumerate(NORTH if agent % 2 == 0 else SOUTH):
                rows.append((agent, MONDAY + day * DAY + (8 + 3 * i) * HOUR, 60, lat, lon, "shop"))
    return stays(*zip(*rows, strict=True))


@pytest.fixture(scope="module")
def fitted():
    return GmVsae(**SETTINGS).fit(routes(10, 10), routes(10, 2, first_day=10))


def test_a_path_that_changes_into_the_other_cluster_is_less_likely(fitted):
    test = routes(10, 2, first_day=12)
    crossing = changed(changed(test, 1, lat=SOUTH[1][0]), 2, lat=SOUTH[2][0])  # agent 0 goes on in the south
    usual, score = (fitted.score(t).agents["score"].to_numpy() for t in (test, crossing))
    assert score[0] > usual.max() + 0.5
    assert np.allclose(score[1:], usual[1:], atol=1e-5)


def test_the_same_places_in_another_order_are_less_likely(fitted):
    test = routes(10, 1, first_day=12)
    back = changed(changed(test, 0, lat=NORTH[2][0]), 2, lat=NORTH[0][0])
    usual, score = (fitted.score(t).agents["score"].to_numpy() for t in (test, back))
    assert score[0] > usual.max()


def test_a_cell_never_seen_is_less_likely_than_any_seen(fitted):
    test = routes(10, 1, first_day=12)
    seen, unseen = changed(test, 1, lat=SOUTH[1][0]), changed(test, 1, lat=61.0)
    score = [fitted.score(t).agents["score"].to_numpy()[0] for t in (test, seen, unseen)]
    assert score[0] < score[1] < score[2]


def test_the_decoder_gives_probabilities_that_add_up_to_one():
    network = RouteMixture(4, GmVsaeSettings(width=8, latent=2, clusters=2)).double()
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    z = torch.zeros(len(pairs), 2, dtype=torch.float64)
    total = network.log_probability(z, pairs, torch.ones(len(pairs), 2)).exp().sum()
    assert float(total.detach()) == pytest.approx(1.0)


def test_the_divergence_with_one_cluster_is_the_gaussian_one():
    network = RouteMixture(4, GmVsaeSettings(width=8, latent=2, clusters=1))
    torch.nn.init.zeros_(network.cluster_mean)
    mean, log_variance = torch.tensor([[1.0, -0.5]]), torch.tensor([[0.3, -1.0]])
    found = network.divergence(mean, mean, log_variance)
    expected = sum(0.5 * (math.exp(r) + m * m - 1 - r) for m, r in ((1.0, 0.3), (-0.5, -1.0)))
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)


def test_a_day_longer_than_the_limit_is_read_up_to_it():
    short = GmVsae(**{**SETTINGS, "epochs": 1, "max_length": 2}).fit(routes(4, 4), routes(4, 1, first_day=4))
    days = agent_days(routes(4, 1, first_day=5), short.schema, short.projection, "gm-vsae")
    assert np.isfinite(short.rate_days(days)).all()
