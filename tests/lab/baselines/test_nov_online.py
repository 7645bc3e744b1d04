"""Nov-Online separates altered events from real ones."""

import numpy as np
import pytest
import torch
from example_towns import changed, town

from ustad.events.windows import EventTensors, Features
from ustad.lab.baselines.nov_online import NovOnline, alter, feature_groups
from ustad.lab.evaluation.detection_metrics import auroc

SETTINGS = {"epochs": 20, "patience": 20, "batch_size": 64, "hidden": 32, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted():
    return NovOnline(**SETTINGS).fit(town(), town(days=2, first_day=8))


def test_altered_events_score_above_real_ones(fitted):
    test = town(days=2, first_day=10)
    arrays = fitted.encoder.encode(test)
    real = EventTensors(arrays).features
    fake = alter(real, real, feature_groups(fitted.encoder), torch.Generator().manual_seed(1))
    same = (fake.numbers == real.numbers).all(1) & (fake.categories == real.categories).all(1)
    with torch.no_grad():
        score = -torch.cat([fitted.network(real), fitted.network(fake)[~same]]).numpy()
    truth = np.arange(len(score)) >= len(arrays)
    assert auroc(truth, score) > 0.85


def test_the_shop_at_the_hour_of_home_stands_out(fitted):
    test = town(agents=6, days=2, first_day=10)
    odd = changed(test, 2, poi_category="home")  # the place of a shop, called home
    score, usual = (fitted.score(t).events["score"].to_numpy() for t in (odd, test))
    assert score[2] > usual.max()
    assert np.allclose(np.delete(score, 2), np.delete(usual, 2))


def test_altered_events_change_whole_features_and_at_least_one():
    events = town(agents=6, days=3)
    model = NovOnline(epochs=1, device="cpu").fit(events, events)
    pool = EventTensors(model.encoder.encode(events)).features
    fake = alter(pool, pool, feature_groups(model.encoder), torch.Generator().manual_seed(0))
    numbers = model.encoder.fields
    x, y = (next(i for i, f in enumerate(numbers) if f.name == n) for n in ("x", "y"))
    pairs = {(round(a, 4), round(b, 4)) for a, b in pool.numbers[:, [x, y]].tolist()}
    assert {(round(a, 4), round(b, 4)) for a, b in fake.numbers[:, [x, y]].tolist()} <= pairs
    unchanged = (fake.numbers == pool.numbers).all(1) & (fake.categories == pool.categories).all(1)
    assert unchanged.float().mean() < 0.1  # only where the donor happens to agree


def test_the_same_seed_gives_the_same_scores_in_any_row_order(fitted):
    test = town(agents=6, days=2, first_day=10)
    again = NovOnline(**SETTINGS).fit(town(), town(days=2, first_day=8))
    order = np.random.default_rng(0).permutation(test.num_rows)
    shuffled = again.score(test.take(order)).events["score"].to_numpy()
    assert np.allclose(shuffled, fitted.score(test).events["score"].to_numpy()[order], rtol=1e-5)


def test_an_altered_vector_is_another_events_whole_vector_or_its_own():
    """Features without numbers and categories but with two vectors of 2 and 3 numbers."""
    n = 200
    vectors = torch.arange(n)[:, None] + torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    nothing = torch.zeros(n, 0)
    events = Features(nothing, nothing.long(), vectors, torch.zeros(n, 2, dtype=torch.bool))
    fake = alter(events, events, [0, 1], torch.Generator().manual_seed(2), sizes=(2, 3))
    owner = fake.vectors - torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    first, second = owner[:, :2], owner[:, 2:]
    assert torch.allclose(first[:, :1], first, atol=1e-3)
    assert torch.allclose(second[:, :1], second, atol=1e-3)
    changed_first, changed_second = (abs(part[:, 0] - torch.arange(n)) > 0.5 for part in (first, second))
    assert (changed_first | changed_second).float().mean() > 0.95
    assert not torch.equal(changed_first, changed_second)
