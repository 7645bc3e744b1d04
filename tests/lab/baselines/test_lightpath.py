"""LightPath: two views of one sequence are recognised as the same, and masked events are recovered."""

import pytest
import torch
from example_towns import town

from ustad.lab.baselines.deep import loop_config
from ustad.lab.baselines.lightpath import LightPath, contrast
from ustad.lab.baselines.windowed import random_masks, window_items

SETTINGS = {"width": 16, "epochs": 12, "patience": 12, "batch_size": 32, "learning_rate": 1e-2, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted():
    return LightPath(contrast_weight=1.0, **SETTINGS).fit(town(agents=16), town(agents=16, days=2, first_day=8))


def test_two_views_of_one_sequence_are_nearer_than_views_of_others(fitted):
    window = loop_config(fitted.settings, 7).window
    train, test = town(agents=16, days=10), town(agents=16, days=1, first_day=10)
    items = window_items(fitted.encoder, train, test, window, device=torch.device("cpu"))[1]
    batch, noise = items.batch(torch.arange(16), int(items.length.max())), torch.Generator().manual_seed(1)
    with torch.no_grad():
        events = fitted.network.embed(batch.features)
        first, second = (fitted.network.view(batch, events, random_masks(batch.padding, r, noise))[1]
                         for r in (0.05, 0.1))  # fmt: skip
    nearest = (first @ second.T).argmax(1)
    assert float((nearest == torch.arange(16)).float().mean()) > 0.5  # by chance: one in sixteen


def test_the_contrast_is_lower_where_pairs_agree():
    vectors = torch.nn.functional.normalize(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    assert contrast(vectors, vectors) < contrast(vectors, vectors.roll(1, 0))
    assert torch.isfinite(contrast(vectors[:1], vectors[:1]))


def test_masks_keep_their_share_and_spare_padding():
    padding = torch.zeros(500, 20, dtype=torch.bool)
    padding[:, 15:] = True
    masked = random_masks(padding, 0.1, torch.Generator().manual_seed(0))
    assert not (masked & padding).any()
    assert masked.any(1).all()
    assert float(masked[:, :15].float().mean()) == pytest.approx(0.1, abs=0.02)


def test_what_is_masked_is_hidden_from_the_encoder_of_the_visible(fitted):
    events = torch.randn(2, 5, 16)
    masked = torch.tensor([[True, False, False, False, False]] * 2)
    changed = events.clone()
    changed[:, 0] += 10.0
    padding, position = torch.zeros(2, 5, dtype=torch.bool), torch.arange(5).expand(2, 5)
    with torch.no_grad():
        first, second = (
            fitted.network.visible(e, masked, padding, position, day_position=position)[0] for e in (events, changed)
        )
    assert torch.allclose(first[:, 1:], second[:, 1:])
