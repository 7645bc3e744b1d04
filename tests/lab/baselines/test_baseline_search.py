"""The search over a baseline's settings: validation loss alone, the same number of trials."""

import json
import math

import pytest
from example_towns import town

from ustad.config import ConfigError
from ustad.lab.baselines import REGISTRY, make
from ustad.lab.baselines import search as searching
from ustad.lab.baselines.search import draw, has_loss, search, space

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


@pytest.mark.parametrize("name", [name for name in REGISTRY if has_loss(name)])
def test_every_deep_method_has_something_to_search(name):
    defaults = make(name).settings
    assert all(getattr(defaults, key) in choices for key, choices in space(name).items())
    assert math.prod(len(choices) for choices in space(name).values()) >= 3


def test_a_search_on_disk_goes_on_where_it_was_and_finds_the_same(tmp_path, monkeypatch):
    train, validation = town(agents=5, days=4), town(agents=5, days=2, first_day=4)
    asked = {"epochs": 1, "device": "cpu"}
    whole = search("nov-online", train, validation, trials=3, **asked)
    search("nov-online", train, validation, trials=2, directory=tmp_path, **asked)
    made = []
    monkeypatch.setattr(searching, "make", lambda *a, **k: (made.append(k), make(*a, **k))[1])
    assert search("nov-online", train, validation, trials=3, directory=tmp_path, **asked) == whole
    assert len(made) == 1
    rows = json.loads((tmp_path / "trials.json").read_text())
    assert [row["loss"] for row in rows] == sorted(loss for _, loss in whole.trials)
    with pytest.raises(ConfigError, match="another method, seed, data or fixed settings"):
        search("nov-online", train, validation, trials=3, seed=8, directory=tmp_path, **asked)


def test_a_search_of_the_same_times_at_other_places_is_refused(tmp_path):
    train, validation = town(agents=5, days=4), town(agents=5, days=2, first_day=4)
    asked = {"validation": validation, "trials": 1, "directory": tmp_path, "epochs": 1, "device": "cpu"}
    choice = search("nov-online", train, **asked)
    at = train.column_names.index("lat")
    moved = train.set_column(at, "lat", train["lat"].take(list(range(len(train)))[::-1]))
    with pytest.raises(ConfigError, match="another method, seed, data or fixed settings"):
        search("nov-online", moved, **asked)
    held = json.loads((tmp_path / "search.json").read_text())
    del held["about"]["data"]  # as before searches wrote down their data
    (tmp_path / "search.json").write_text(json.dumps(held))
    assert search("nov-online", train, **asked) == choice


def test_two_processes_in_one_directory_wait_for_each_other(tmp_path):
    """The second has to find the first one's trials: it gets the lock only when the first is done."""
    fcntl = pytest.importorskip("fcntl")
    with searching._alone(tmp_path), (tmp_path / ".lock").open("w") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_method_without_a_loss_keeps_its_defaults():
    choice = search("ibat", town(agents=5, days=4), town(agents=5, days=2, first_day=4), device="cpu")
    assert choice.settings == {}
