"""SensitiveHUE: its σ follows planted noise, and its score is the published one."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
import torch
from example_towns import DAY, HOUR, MONDAY, changed, stays

from ustad.events.windows import EventTensors
from ustad.lab.baselines.deep import ask, loop_config, masked_predictions
from ustad.lab.baselines.sensitive_hue import SensitiveHue
from ustad.schema import Feature, mobility_schema

SETTINGS = {"width": 16, "epochs": 25, "patience": 25, "batch_size": 32, "learning_rate": 1e-2, "device": "cpu"}


def noisy(agents: int = 12, days: int = 8, first_day: int = 0):
    """Three stays a day; only the second one's duration is noisy."""
    rng = np.random.default_rng([3, first_day])
    rows = []
    for agent in range(agents):
        for d in range(first_day, first_day + days):
            for hour, minutes in ((1, 300), (9, 240 + rng.normal(0, 60)), (18, 200)):
                rows.append((agent, MONDAY + d * DAY + hour * HOUR, minutes, 60.0, 25 + hour / 50, "x"))
    return stays(*zip(*rows, strict=True), first_id=10_000 * first_day)


@pytest.fixture(scope="module")
def fitted():
    return SensitiveHue(**SETTINGS).fit(noisy(), noisy(days=2, first_day=8))


def told(model, events, context):
    asked = ask(model.encoder, events, context, loop_config(model.settings, 7).window)
    parts = list(masked_predictions(model.network, EventTensors(asked.arrays), asked.queries))
    order = np.argsort(asked.row)
    return (
        torch.cat([p.mean for p, _, _ in parts])[order],
        torch.cat([p.log_variance for p, _, _ in parts])[order],
        torch.cat([f.numbers for _, f, _ in parts])[order],
    )


def test_sigma_follows_the_planted_noise(fitted):
    column = [f.name for f in fitted.encoder.fields].index("duration")
    _, log_variance, _ = told(fitted, noisy(days=2, first_day=10), noisy(days=10))
    sigma = (0.5 * log_variance[:, column]).exp().view(-1, 3).mean(0)
    scale = fitted.encoder.scales["duration"].scale[0]
    assert sigma[1] > 3 * max(sigma[0], sigma[2])
    assert float(sigma[1]) * scale == pytest.approx(60, rel=0.4)


def test_the_same_error_counts_less_where_noise_is_usual(fitted):
    test, before = noisy(agents=4, days=1, first_day=10), noisy(days=10)
    quiet, loud = 0, 1  # the first and the second stay of agent 0
    longer = []
    for row in (quiet, loud):
        end = test["finished_at"][row].as_py() + timedelta(minutes=50)
        longer.append(fitted.score(changed(test, row, finished_at=end), before).events["score"].to_numpy()[row])
    assert longer[0] > longer[1]


def test_the_score_is_the_published_formula(fitted):
    test, before = noisy(agents=4, days=2, first_day=10), noisy(days=10)
    mean, log_variance, truth = told(fitted, test, before)
    variance = log_variance.double().exp()
    published = (mean.double() - truth.double()) ** 2 / (2 * variance) + 0.5 * variance.log()
    expected = ((published.numpy() - fitted.centre) / fitted.spread).max(1)
    assert np.allclose(fitted.score(test, before).events["score"].to_numpy(), expected)


def test_a_lone_event_is_not_told_by_itself(fitted):
    one = noisy(agents=1, days=1, first_day=20).slice(0, 1)
    other = changed(one, 0, lat=61.0, lon=26.0)
    assert torch.allclose(told(fitted, one, None)[0], told(fitted, other, None)[0])


def test_a_vector_is_one_channel_the_mean_of_the_published_formula_over_its_numbers():
    def with_ways(table, seed):
        ways = np.random.default_rng(seed).normal(size=(table.num_rows, 3)).astype(np.float32)
        return table.append_column("way", pa.array(ways.tolist(), pa.list_(pa.float32())))

    schema = replace(mobility_schema(), features=(*mobility_schema().features, Feature("way", "vector", size=3)))
    train, validation = (with_ways(noisy(days=n, first_day=d), d) for n, d in ((8, 0), (2, 8)))
    model = SensitiveHue(schema, **{**SETTINGS, "epochs": 2}).fit(train, validation)
    test = with_ways(noisy(agents=4, days=1, first_day=10), 3)
    asked = ask(model.encoder, test, None, loop_config(model.settings, 7).window)
    parts = list(masked_predictions(model.network, EventTensors(asked.arrays), asked.queries))
    mean, spread, truth = (
        torch.cat(values).double()
        for values in zip(*((p.vectors[0], p.vector_log_variance[0], f.vectors) for p, f, _ in parts), strict=True)
    )
    published = ((mean - truth) ** 2 / (2 * spread.exp()) + 0.5 * spread).mean(dim=1).numpy()
    channels, row = model.channels(test, None)
    assert [f.name for f in model.encoder.fields][-1] == "way"
    assert np.allclose(channels[:, -1], published)
    assert sorted(row) == list(range(test.num_rows))
