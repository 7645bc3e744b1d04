"""Schemas and settings: what may be said, and how a slip is answered."""

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from settings_page import CONFIGS, PAGE, write_page, write_preset
from ustad.cli.shared import resolve_config
from ustad.config import PRESETS, Config, ConfigError, describe_settings
from ustad.progress import UstadWarning
from ustad.schema import EventSchema, Feature, mobility_schema, plural
from ustad.tables import DataError


def test_mobility_is_the_papers_event():
    schema = mobility_schema(trips="embedding", trip_size=8)
    fields = [n for f in schema.features for n in f.field_names]
    assert fields == ["start_x", "start_y", "duration", "x", "y", "poi", "weekday", "trip_shape", "trip_speed"]
    assert [t.name for t in schema.terms()] == [
        "start", "duration", "x", "y", "poi", "weekday", "trip_shape", "trip_speed",
    ]  # fmt: skip


def test_a_schema_survives_yaml(tmp_path):
    schema = mobility_schema(trips="summary")
    schema.to_yaml(tmp_path / "mobility.yaml")
    assert EventSchema.from_yaml(tmp_path / "mobility.yaml") == schema


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"name": "a", "kind": "numerical"}, "unknown kind 'numerical'"),
        ({"name": "a", "kind": "cyclic"}, "period"),
        ({"name": "a", "kind": "vector"}, "size"),
        ({"name": "a", "kind": "place"}, "two source columns"),
        ({"name": "a", "kind": "numeric", "source": ["@hour"]}, "unknown derived value @hour"),
        ({"name": "a", "kind": "numeric", "soruce": ["b"]}, "did you mean 'source'"),
        ({"name": "a"}, "incomplete"),
    ],
)
def test_a_slip_in_a_schema_is_explained(feature, message):
    with pytest.raises(DataError, match=message):
        EventSchema.from_dict({"name": "s", "features": [feature]})


def test_two_features_cannot_share_a_field():
    with pytest.raises(DataError, match="same field"):
        EventSchema("s", (Feature("a", "numeric"), Feature("a", "categorical")))


def test_every_setting_says_what_it_is_for():
    def undocumented(kind):
        for f in dataclasses.fields(kind):
            if not f.metadata.get("about"):
                yield f"{kind.__name__}.{f.name}"
            if dataclasses.is_dataclass(f.default_factory):
                yield from undocumented(f.default_factory)

    assert list(undocumented(Config)) == []


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_yaml(name, tmp_path):
    config = Config.preset(name)
    config.to_yaml(tmp_path / "c.yaml")
    assert Config.from_yaml(tmp_path / "c.yaml") == config


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_configurations_are_the_presets_with_every_setting_they_use(path):
    assert path.read_text() == write_preset(path.stem)
    assert Config.from_yaml(path) == Config.preset(path.stem)


def test_every_preset_is_shipped_as_a_file():
    assert {p.stem for p in CONFIGS.glob("*.yaml")} == set(PRESETS)


def test_the_paper_preset_is_the_paper():
    config = Config.preset("paper")
    assert (config.scoring.samples, config.model.dropout, config.scoring.neighbours) == (50, 0.05, 150)
    assert (config.window.length, config.window.mode, config.scoring.percentiles) == (3, "day", "batch")
    assert (config.training.batch_size, config.training.learning_rate, config.training.weight_decay) == (
        128,
        1e-3,
        1e-5,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.widht": 32}, "did you mean 'model.width'"),
        ({"modle.width": 32}, "did you mean 'model'"),
        ({"model.width": "wide"}, "model.width must be a int"),
        ({"model.width": 30}, "multiple of heads"),
        ({"model.dropout": 0.0}, "above 0 where model.uncertainty"),
        ({"window.mode": "future"}, "one of day, past"),
        ({"training.mask_ratio": 1.5}, "between 0 and 1"),
        ({"seed.x": 1}, "a setting, not a section"),
        ({"model": 3}, "is a section"),
    ],
)
def test_a_slip_in_a_setting_is_explained(changes, message):
    with pytest.raises(ConfigError, match=message):
        Config().replace(changes)


def test_unknown_presets_get_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        Config.preset("papper")


def test_yaml_numbers_in_scientific_notation_are_numbers(tmp_path):
    (tmp_path / "c.yaml").write_text("preset: best\ntraining:\n  learning_rate: 1e-4\n")
    assert Config.from_yaml(tmp_path / "c.yaml").training.learning_rate == 1e-4


def test_what_a_file_leaves_out_comes_from_its_preset_or_the_one_asked_for(tmp_path):
    (tmp_path / "c.yaml").write_text("model:\n  width: 16\n")
    assert Config.from_yaml(tmp_path / "c.yaml", "best") == Config.preset("best", **{"model.width": 16})
    (tmp_path / "c.yaml").write_text("preset: paper\nmodel:\n  width: 16\n")
    assert Config.from_yaml(tmp_path / "c.yaml", "quick") == Config.preset("paper", **{"model.width": 16})


@pytest.mark.parametrize(
    ("word", "words"),
    [("agent", "agents"), ("entity", "entities"), ("stay", "stays"), ("purchase", "purchases"), ("box", "boxes")],
)
def test_several_of_a_kind_are_called_so(word, words):
    assert plural(word) == words


def test_settings_are_few_and_all_on_the_page():
    rows = describe_settings()
    assert len(rows) <= 45
    page = PAGE.read_text()
    assert page == write_page(), "write it anew: python benchmarks/settings_page.py"
    assert all(f"| `{row['name']}` | {row['about']}" in page for row in rows)


@pytest.mark.parametrize(("preset", "name", "value", "network"), [
    ("quick", "scoring.neighbours", 50, "dual"),
    ("quick", "model.width", 32, "memory"),
    ("best", "scoring.knn_scope", "own", "dual"),
    ("paper", "scoring.absorb_after", 7, "none"),
])  # fmt: skip
def test_settings_that_a_preset_does_not_use_are_refused(tmp_path, preset, name, value, network):
    with pytest.raises(ConfigError, match=f"{name} is not used with .* model.network={network}"):
        Config.preset(preset, **{name: value})
    with pytest.raises(ConfigError, match=f"{name} is not used with"):
        resolve_config(preset, None, [f"{name}={value}"], None)
    used = Config.preset(preset, **{"model.network": network, name: value})
    assert used == resolve_config(preset, None, [f"model.network={network}", f"{name}={value}"], None)


def test_a_file_may_write_all_settings_out_but_not_ask_for_what_is_not_used(tmp_path):
    file = tmp_path / "c.yaml"
    Config.preset("best").to_yaml(file)
    assert Config.from_yaml(file, "quick") == Config.preset("best")
    file.write_text("preset: quick\nscoring: {neighbours: 51}\n")
    with pytest.raises(ConfigError, match=r"scoring\.neighbours is not used"):
        Config.from_yaml(file)


@pytest.mark.parametrize(
    "content", ["scoring: {method: habits}", "model: {aleatoric: true}", "training: {optimizer: adamw}"]
)
def test_settings_and_models_of_version_0_2_are_refused_in_one_line_that_says_what_to_do(tmp_path, content):
    file = tmp_path / "c.yaml"
    file.write_text(content + "\n")
    with pytest.raises(ConfigError, match=r"unknown setting '.*' \(.* CHANGELOG\.md tells") as told:
        Config.from_yaml(file)
    assert "\n" not in str(told.value)
    with pytest.raises(ConfigError, match="another version of ustad, train it again"):
        Config.from_model(file)


@pytest.mark.parametrize(("name", "now"), [("default", "best"), ("fast", "quick")])
def test_presets_of_version_0_2_load_with_one_line_that_says_what_they_are_called_now(tmp_path, name, now):
    with pytest.warns(UstadWarning, match=f"^the preset '{name}' is called '{now}' now$") as told:
        assert Config.preset(name, seed=9) == Config.preset(now, seed=9)
    assert len(told) == 1
    (tmp_path / "c.yaml").write_text(f"preset: {name}\nseed: 9\n")
    with pytest.warns(UstadWarning, match=f"called '{now}' now"):
        assert Config.from_yaml(tmp_path / "c.yaml") == Config.preset(now, seed=9)
    with pytest.warns(UstadWarning, match=f"called '{now}' now"), pytest.raises(ConfigError, match="unknown setting"):
        Config.preset(name, **{"scoring.method": "habits"})
