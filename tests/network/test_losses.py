"""Every equation against a slow, obvious version in double precision, and against closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_batches import FIELDS, make_features
from scipy.stats import norm

from ustad.config import TrainingConfig
from ustad.events.windows import Features
from ustad.network import losses
from ustad.network.heads import IMPOSSIBLE, Heads, clamp_smoothly
from ustad.network.losses import (
    categorical_nll,
    field_losses,
    field_means,
    gaussian_nll,
    masked_loss,
    masked_mean,
    weigh,
)


class FewDraws(TrainingConfig):
    """Seven draws, and categories that count half."""

    noise_samples = 7  # type: ignore[assignment]  # a constant instead of what follows from the recipe


CONFIG = FewDraws(category_weight=0.5)


def softmax_by_hand(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(v - top) for v in row]
    return [p / sum(powers) for p in powers]


def categorical_by_hand(logits: np.ndarray, log_sigma: np.ndarray, target: int, noise: np.ndarray) -> float:
    """The paper's equation, one sample after the other."""
    chances = []
    for epsilon in noise:
        noisy = [float(u) + math.exp(float(s)) * float(e) for u, s, e in zip(logits, log_sigma, epsilon, strict=True)]
        chances.append(softmax_by_hand(noisy)[target])
    return -math.log(sum(chances) / len(chances))


@given(st.floats(-50, 50), st.floats(-9, 4), st.floats(-50, 50))
def test_gaussian_loss_is_the_normal_density_without_its_constant(mean: float, log_variance: float, y: float) -> None:
    found = gaussian_nll(*(torch.tensor(v, dtype=torch.float64) for v in (mean, log_variance, y)))
    truth = -norm.logpdf(y, mean, math.exp(log_variance / 2)) - 0.5 * math.log(2 * math.pi)
    assert found.item() == pytest.approx(truth, rel=1e-9, abs=1e-9)


def test_gaussian_loss_is_smallest_at_the_true_variance() -> None:
    errors = torch.randn(20_000, dtype=torch.float64) * 3
    grid = torch.linspace(0, 4, 401, dtype=torch.float64)
    losses = torch.stack([gaussian_nll(torch.zeros(()), r, errors).mean() for r in grid])
    assert grid[losses.argmin()].item() == pytest.approx(math.log(errors.pow(2).mean()), abs=0.01)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(2, 6), st.integers(1, 9))
def test_categorical_loss_equals_the_loop_over_samples(seed: int, events: int, classes: int, samples: int) -> None:
    random = np.random.default_rng(seed)
    logits, log_sigma = random.normal(0, 5, (events, classes)), random.uniform(-4.5, 2, (events, classes))
    target, noise = random.integers(0, classes, events), random.normal(size=(samples, events, classes))
    found = categorical_nll(*(torch.from_numpy(a) for a in (logits, log_sigma, target, noise)))
    truth = [categorical_by_hand(logits[i], log_sigma[i], target[i], noise[:, i]) for i in range(events)]
    np.testing.assert_allclose(found.numpy(), truth, rtol=1e-9, atol=1e-12)


def test_categorical_loss_without_noise_is_cross_entropy() -> None:
    logits, target = torch.randn(6, 4, dtype=torch.float64), torch.randint(0, 4, (6,))
    truth = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    none = categorical_nll(logits, None, target, (3, None))
    tiny = categorical_nll(logits, torch.full_like(logits, -40.0), target, torch.randn(3, 6, 4, dtype=torch.float64))
    torch.testing.assert_close(none, truth)
    torch.testing.assert_close(tiny, truth)


def test_categorical_loss_approaches_the_integral_over_the_noise() -> None:
    """Two classes: the softmax is a logistic function of a normal difference, integrated on a grid."""
    logits, log_sigma = torch.tensor([0.7, -0.4], dtype=torch.float64), torch.tensor([0.3, -0.2], dtype=torch.float64)
    spread = math.sqrt(math.exp(0.6) + math.exp(-0.4))
    grid = np.linspace(-12, 12, 20_001)
    chance = np.trapezoid(norm.pdf(grid) / (1 + np.exp(-(1.1 + spread * grid))), grid)
    generator = torch.Generator().manual_seed(1)
    found = categorical_nll(logits[None], log_sigma[None], torch.tensor([0]), (200_000, generator))
    assert found.item() == pytest.approx(-math.log(chance), abs=0.005)


def test_categorical_loss_is_finite_where_probabilities_underflow() -> None:
    logits = torch.tensor([[0.0, 5_000.0], [IMPOSSIBLE, 0.0]], requires_grad=True)
    loss = categorical_nll(logits, torch.zeros(2, 2), torch.tensor([0, 1]), torch.randn(4, 2, 2))
    loss.sum().backward()
    assert loss[0].item() == pytest.approx(5_000, rel=0.01)
    assert loss[1].item() == 0.0
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_gradients_of_the_losses_are_right() -> None:
    mean, r, y = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(gaussian_nll, (mean, r, y))
    logits, log_sigma = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    target, noise = torch.tensor([0, 2, 3]), torch.randn(5, 3, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda u, s: categorical_nll(u, s, target, noise), (logits, log_sigma))


def test_gradients_of_the_bounds_are_right_and_never_vanish_within_reach() -> None:
    raw = torch.tensor([-12.0, -9.0, 0.0, 4.0, 8.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: clamp_smoothly(v, -9.0, 4.0), (raw,))
    clamp_smoothly(raw, -9.0, 4.0).sum().backward()
    assert raw.grad is not None
    assert (raw.grad > 0.01).all()


@given(st.floats(-1e6, 1e6))
def test_log_variances_stay_within_their_bounds(raw: float) -> None:
    value = clamp_smoothly(torch.tensor(raw, dtype=torch.float64), -9.0, 4.0).item()
    assert -9.001 <= value <= 4.001


def by_hand(features: Features, means: torch.Tensor, spreads: torch.Tensor, noise: list[np.ndarray]) -> np.ndarray:
    """Losses of FIELDS event by event from the raw outputs of the heads: [N, 5]."""
    table = np.zeros((len(means), 5))
    for i in range(len(means)):
        u, s = means[i].numpy(), spreads[i].numpy()
        for j in range(2):
            y, r = float(features.numbers[i, j]), float(s[j])
            table[i, j] = 0.5 * math.exp(-r) * (y - u[j]) ** 2 + 0.5 * r
        for j, (first, last) in enumerate([(2, 6), (6, 13)]):
            code = int(features.categories[i, j])
            if code:
                table[i, 2 + j] = categorical_by_hand(u[first:last], s[first:last], code - 1, noise[j][:, i, 1:])
        errors = [(float(features.vectors[i, k]) - u[13 + k]) ** 2 for k in range(3)]
        table[i, 4] = 0.5 * math.exp(-s[13]) * sum(errors) / 3 + 0.5 * s[13]
    return np.where(features.missing.numpy(), 0.0, table)


def test_the_whole_loss_equals_the_paper_written_out() -> None:
    heads = Heads(FIELDS, 6, aleatoric=True).double()
    hidden, features = torch.randn(9, 6, dtype=torch.float64), make_features(FIELDS, 9, dtype=torch.float64)
    masked = torch.arange(9) % 2 == 0
    with torch.no_grad():
        predictions = heads(hidden)
        means, spreads = heads.linear(hidden).split([16, 14], dim=-1)
        low = [-9.0] * 2 + [-4.5] * 11 + [-9.0]
        spreads = torch.stack([clamp_smoothly(spreads[:, i], low[i], low[i] / -9 * 4) for i in range(14)], dim=-1)
        generator = torch.Generator().manual_seed(3)
        noise = [torch.randn(7, 9, c, dtype=torch.float64, generator=generator).numpy() for c in (5, 8)]
        table = by_hand(features, means, spreads, noise)
        loss = masked_loss(
            predictions, features, masked, FIELDS, config=CONFIG, generator=torch.Generator().manual_seed(3)
        )
    weights = np.array([1, 1, 0.5, 0.5, 1])  # λ = 0.5
    assert loss.total.item() == pytest.approx((table[masked.numpy()] @ weights).mean(), rel=1e-6)
    present = masked.numpy()[:, None] & ~features.missing.numpy()
    np.testing.assert_allclose(loss.fields.numpy(), (table * present).sum(0) / present.sum(0), rtol=1e-6)


def test_only_masked_events_and_present_targets_count() -> None:
    heads, features = Heads(FIELDS, 6, aleatoric=True), make_features(FIELDS, 4)
    features.missing[:] = False
    features.categories.clamp_(min=1)
    hidden = torch.randn(4, 6, requires_grad=True)
    masked = torch.tensor([True, False, False, True])
    features.missing[3] = True
    masked_loss(heads(hidden), features, masked, FIELDS, config=CONFIG).total.backward()
    assert hidden.grad is not None
    assert hidden.grad[0].abs().sum() > 0
    assert hidden.grad[1:].abs().sum() == 0


def test_without_aleatoric_uncertainty_the_losses_are_squared_error_and_cross_entropy() -> None:
    heads, features = Heads(FIELDS, 6, aleatoric=False), make_features(FIELDS, 50)
    predictions = heads(torch.randn(50, 6))
    losses = field_losses(predictions, features, FIELDS, CONFIG)
    squared = 0.5 * (features.numbers - predictions.mean) ** 2
    entropy = torch.nn.functional.cross_entropy(predictions.logits[0], features.categories[:, 0], reduction="none")
    present = ~features.missing
    torch.testing.assert_close(losses[:, 0][present[:, 0]], squared[:, 0][present[:, 0]])
    torch.testing.assert_close(losses[:, 2][present[:, 2]], entropy[present[:, 2]])
    assert predictions.log_sigma == ()


def test_lambda_weighs_categories_only() -> None:
    losses = torch.ones(3, 5)
    assert weigh(losses, FIELDS, CONFIG).tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("aleatoric", [True, False])
def test_losses_of_windows_are_those_of_their_events_one_after_the_other(aleatoric: bool) -> None:
    """Leading dimensions are the caller's: [2, 4] events have the losses of eight."""
    config = TrainingConfig(category_weight=0.5)
    heads, features = Heads(FIELDS, 6, aleatoric=aleatoric), make_features(FIELDS, 2, 4)
    hidden = torch.randn(2, 4, 6)
    flat = Features(*(part.flatten(0, 1) for part in vars(features).values()))
    both = [
        field_losses(heads(h), f, FIELDS, config, generator=torch.Generator().manual_seed(5))
        for h, f in ((hidden, features), (hidden.flatten(0, 1), flat))
    ]
    torch.testing.assert_close(both[0].flatten(0, 1), both[1])
    torch.testing.assert_close(weigh(both[0], FIELDS, config).flatten(), weigh(both[1], FIELDS, config))


@pytest.mark.parametrize(
    ("most", "rows"), [(1200, [4]), (1199, [3, 1]), (900, [3, 1]), (899, [2, 2]), (300, [1] * 4), (7, [1] * 4)]
)
def test_noise_is_drawn_for_as_many_rows_at_once_as_the_limit_allows(most, rows, monkeypatch) -> None:
    """Four rows of six classes with 50 samples each; rows of windows are not divided."""
    drawn: list[tuple[int, ...]] = []
    draw = losses._draw

    def draw_and_note(like: torch.Tensor, *arguments: Any) -> torch.Tensor:
        drawn.append(tuple(like.shape))
        return draw(like, *arguments)

    monkeypatch.setattr(losses, "_draw", draw_and_note)
    monkeypatch.setattr(losses, "DRAWS", most)
    logits, target = torch.randn(4, 6), torch.tensor([0, 5, 2, 1])
    assert categorical_nll(logits, torch.zeros(4, 6), target, (50, None)).shape == (4,)
    assert drawn == [(count, 6) for count in rows]
    drawn.clear()
    categorical_nll(logits[:, None], torch.zeros(4, 1, 6), target[:, None], (50, None))
    assert drawn == [(4, 1, 6)]


def test_means_are_over_one_event_where_one_is_masked_and_zero_where_none_is() -> None:
    values, masked = torch.tensor([3.0, 5.0, 7.0]), torch.tensor([False, True, False])
    assert masked_mean(values, masked).item() == 5.0
    assert masked_mean(values, torch.zeros(3, dtype=torch.bool)).item() == 0.0
    missing = torch.tensor([[False, False], [False, True], [False, False]])
    assert field_means(values[:, None].expand(3, 2), missing, masked).tolist() == [5.0, 0.0]
