"""One frozen tree of settings, its presets, and YAML in and out.

Every setting is documented where it stands (`sections`); a test fails on one that is not. docs/reference/settings.md
lists them all.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from ustad import progress
from ustad.config.sections import (
    ExtractionConfig,
    ModelConfig,
    ScoringConfig,
    SplitConfig,
    TrainingConfig,
    WindowConfig,
)
from ustad.config.setting_fields import (
    NO_YAML,
    ConfigError,
    flatten,
    nest,
    read_settings,
    read_yaml,
    require,
    section,
    setting,
)

#: What this file gives is all that other rooms may import; a test refuses imports past it.
DOOR = ()

__all__ = [
    "NO_YAML",
    "PRESETS",
    "Config",
    "ConfigError",
    "ExtractionConfig",
    "ModelConfig",
    "ScoringConfig",
    "SplitConfig",
    "TrainingConfig",
    "WindowConfig",
    "describe_settings",
    "flatten",
    "read_yaml",
    "setting",
]


@dataclass(frozen=True)
class Config:
    """Everything that decides a result, in one tree."""

    seed: int = setting(7, "every random choice follows from it")
    extraction: ExtractionConfig = section(ExtractionConfig, "fixes to stays, trips and gaps")
    split: SplitConfig = section(SplitConfig, "train, validation and test by local date")
    window: WindowConfig = section(WindowConfig, "what the network sees around an event")
    model: ModelConfig = section(ModelConfig, "the network, if any")
    training: TrainingConfig = section(TrainingConfig, "how the network is fitted")
    scoring: ScoringConfig = section(ScoringConfig, "from the network and habits to scores")

    def __post_init__(self) -> None:
        memory, unit = self.model.network == "memory", self.window.unit
        require(not memory or unit != "sessions", "window.unit", unit, "days or events where model.network is memory")

    # -------------------------------------------------------------------------------------- making one
    @classmethod
    def preset(cls, name: str, **changes: Any) -> Config:
        """A named configuration, with changes by dotted name: `Config.preset("paper", **{"model.width": 32})`."""
        if name in FORMER_PRESETS:
            progress.warn(f"the preset '{name}' is called '{FORMER_PRESETS[name]}' now")
            name = FORMER_PRESETS[name]
        if name not in PRESETS:
            near = difflib.get_close_matches(name, PRESETS, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"unknown preset '{name}'{hint} (known: {', '.join(PRESETS)})")
        config = cls().replace(PRESETS[name]).replace(changes)
        config.refuse_unused(changes)
        return config

    def replace(self, changes: dict[str, Any] | None = None, **more: Any) -> Config:
        """A copy with the settings named by dotted keys changed."""
        content = dict(flatten(self.to_dict()))
        return Config.from_dict({**content, **(changes or {}), **more})

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Config:
        """From a tree of settings as `to_dict` gives it, or by dotted names."""
        return read_settings(cls, nest(dict(flatten(content))))

    @classmethod
    def from_yaml(cls, path: Path | str, preset: str | Config = "paper") -> Config:
        """A YAML file of the same tree. Settings that it leaves out come from its line `preset: NAME`, or else from the
        argument `preset`, which may be a configuration too."""
        content = read_yaml(Path(path))
        preset = content.pop("preset", preset)
        base = preset if isinstance(preset, Config) else cls.preset(preset)
        settings = dict(flatten(content))
        config = base.replace(settings)
        # A file may write out all settings of a preset: what some preset has is no wish.
        values_here = dict(flatten(config.to_dict()))
        plain = [cls(), *(cls().replace(changes) for changes in PRESETS.values())]
        usual = [dict(flatten(one.to_dict())) for one in plain]
        config.refuse_unused(
            n for n in settings if n in values_here and all(values_here[n] != values[n] for values in usual)
        )
        return config

    @classmethod
    def from_model(cls, path: Path | str) -> Config:
        """What a model was trained with."""
        try:
            return cls.from_dict(read_yaml(Path(path)))
        except ConfigError as error:
            raise ConfigError(f"{error}; the model is of another version of ustad, train it again") from error

    def refuse_unused(self, names: Iterable[str]) -> None:
        """Refuse settings that nothing looks at with this network."""
        networks = {row["name"]: row["networks"] for row in describe_settings()}
        for name in names:
            users, network = networks.get(name) or (), self.model.network
            if users and network not in users:
                choices = " or ".join(f"model.network={user}" for user in users)
                raise ConfigError(f"{name} is not used with model.network={network}; leave it out, or set {choices}")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_yaml(self, path: Path | str | None = None) -> str:
        text = yaml.safe_dump(self.to_dict(), sort_keys=False)
        if path is not None:
            Path(path).write_text(text)
        return text


#: What each preset changes against the defaults. `paper` has the paper's settings; docs/method.md lists where network
#: and score depart from the paper.
PRESETS: dict[str, dict[str, Any]] = {
    "best": {
        "model.network": "memory",
        "model.event_blocks": 3,
        "training.recipe": "cosine",
        "training.batch_size": 256,
        "training.learning_rate": 2e-3,
        "training.epochs": 20,
        "training.patience": 5,
        "scoring.samples": 8,
        "scoring.percentiles": "calibrated",
    },
    # No network is trained; the settings of one are for whoever sets `model.network` too.
    "quick": {
        "model.network": "none",
        "model.width": 32,
        "model.event_blocks": 2,
        "training.recipe": "cosine",
        "training.learning_rate": 3e-3,
        "training.epochs": 40,
        "training.patience": 8,
        "scoring.samples": 16,
        "scoring.neighbours": 50,
        "scoring.percentiles": "calibrated",
    },
    "paper": {"model.trips": "embedding", "scoring.knn_target": "masked"},
}
#: What presets of 0.2 are called now.
FORMER_PRESETS = {"default": "best", "fast": "quick"}


def describe_settings() -> list[dict[str, Any]]:
    """Every setting: dotted name, default, what it is for, and the networks that use it (empty: all)."""
    own = [("", f) for f in fields(Config) if f.default is not dataclasses.MISSING]
    sections = [(f"{f.name}.", f.default_factory) for f in fields(Config) if f.default is dataclasses.MISSING]
    inner = [(prefix, f) for prefix, kind in sections for f in fields(kind)]  # type: ignore[arg-type]  # dataclasses
    return [
        {"name": prefix + f.name, "default": f.default, "type": f.type, **f.metadata} for prefix, f in (*own, *inner)
    ]
