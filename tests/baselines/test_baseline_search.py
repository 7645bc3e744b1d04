"""The search over a baseline's settings: validation loss alone, the same number of trials."""

import pytest
from example_towns import town

from ustad.baselines import REGISTRY, make
from ustad.baselines.search import draw, search, space

FIXED = {"device": "cpu", "epochs": 1, "heads": 2}


def test_the_space_is_the_papers():
    assert space("ibat") == {"trials": (50, 100, 200, 300), "subsample": (64, 128, 256, 512)}
    assert space("gm-vsae") == {"width": (256, 512), "clusters": (5, 10)}
    assert space("atrom") == {"width": (64, 128, 512)}
    assert space("sensitive-hue") == {"width": (64, 128), "blocks": (1, 2)}
    assert space("transformer")["blocks"] == (3, 4, 5)
    assert space("ctle")["width"] == (64, 128)


@pytest.mark.parametrize("name", REGISTRY)
def test_trials_are_distinct_and_begin_with_the_defaults(name):
    tried = draw(name, 6, 7, {})
    assert len(tried) == len({str(t) for t in tried}) <= 6
    assert tried == draw(name, 6, 7, {})
    defaults = make(name).settings
    assert all(getattr(defaults, key) == value for key, value in tried[0].items())


def test_the_choice_is_the_trial_with_the_lowest_validation_loss():
    train, validation = town(agents=5, days=4), town(agents=5, days=2, first_day=4)
    choice = search("transformer", train, validation, trials=3, blocks=1, **FIXED)
    assert len(choice.trials) == 3
    assert choice.loss == min(loss for _, loss in choice.trials)
    again = make("transformer", blocks=1, **FIXED, **choice.settings).fit(train, validation)
    assert again.validation_loss == choice.loss
    assert "blocks" not in choice.settings


def test_a_method_without_a_loss_keeps_its_defaults():
    choice = search("ibat", town(agents=5, days=4), town(agents=5, days=2, first_day=4), device="cpu")
    assert choice.settings == {}
