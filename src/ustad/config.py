"""One frozen tree of settings, its presets, and YAML in and out.

Every setting is documented where it stands (`about`); a test fails on one that is not.
"""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
import types
import typing
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import yaml

from ustad import progress


class ConfigError(ValueError):
    """A setting that does not exist or cannot be what it was set to."""


def setting(default: Any, about: str) -> Any:
    """A documented setting with its default."""
    return field(default=default, metadata={"about": about})


def section(kind: type, about: str) -> Any:
    return field(default_factory=kind, metadata={"about": about})


#: What reading YAML raises where a file is none: ValueError also for other bytes than text and for days that are not.
NO_YAML = (yaml.YAMLError, ValueError, RecursionError)


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a YAML file; one line says what is wrong with it."""
    if not path.exists():
        raise ConfigError(f"{path}: no such configuration file")
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except NO_YAML as error:
        raise ConfigError(
            f"{path}: not valid YAML ({(str(error).splitlines() or [type(error).__name__])[0]})"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping of settings")
    return content


def _shown(value: Any) -> str:
    """A value in a message: of what refers to itself a thousandfold only the beginning."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 200, 200


def _require(condition: bool, name: str, value: Any, wanted: str) -> None:
    if not condition:
        raise ConfigError(f"{name} must be {wanted}, got {_shown(value)}")


def _is_date(text: str) -> bool:
    """Whether a text is empty or a date as 2024-03-31."""
    try:
        return not text or (len(text) == 10 and bool(date.fromisoformat(text)))
    except ValueError:
        return False


@dataclass(frozen=True)
class ExtractionConfig:
    """Fixes to stays, trips and gaps."""

    distance_m: float = setting(100.0, "a stay's fixes lie within this distance of its first fix, metres")
    minutes: float = setting(5.0, "a stay lasts at least this long, minutes")
    gap_minutes: float = setting(60.0, "no fix for longer than this is a gap: time that nobody observed; 0: no limit")
    join: bool = setting(
        True, "pieces at one place that nothing contradicts are one stay; off: each ends at a gap or a stray fix"
    )
    bridge_hours: float = setting(36.0, "silence that ends where it began is part of the stay up to this long")
    reach_m: float = setting(
        0.0, "silence that ends within this distance ended on the way from the place, metres; 0: 2.5 distance_m"
    )
    changes_reach_m: float = setting(
        0.0, "the same for people whose phone reports changes only, known by their own fixes, metres; 0: no such phones"
    )
    end_rule: Literal["first-outside", "last-inside"] = setting(
        "first-outside", "a stay ends at the first fix outside (as trackintel) or at its last fix inside"
    )
    include_last: bool = setting(True, "keep each agent's last stay although its end was not seen")
    max_accuracy_m: float = setting(0.0, "drop fixes that claim to be worse than this, metres; 0: keep all")
    max_speed_kmh: float = setting(0.0, "drop fixes that need more than this speed to reach and leave; 0: keep all")
    drop_outliers: bool = setting(
        True, "drop a single fix half distance_m or more off its two neighbours, if too short-lived for a stay"
    )
    poi_radius_m: float = setting(150.0, "the nearest POI within this distance names a stay's category")

    def __post_init__(self) -> None:
        for name in ("distance_m", "minutes", "poi_radius_m"):
            _require(getattr(self, name) > 0, f"extraction.{name}", getattr(self, name), "above 0")
        for name in ("gap_minutes", "bridge_hours", "reach_m", "changes_reach_m", "max_accuracy_m", "max_speed_kmh"):
            _require(getattr(self, name) >= 0, f"extraction.{name}", getattr(self, name), "0 or more")


@dataclass(frozen=True)
class SplitConfig:
    """Train, validation and test by local date."""

    train_weeks: float = setting(
        3.0, "weeks of training from the first day on; longer where the data spans three times all these weeks"
    )
    validation_weeks: float = setting(1.0, "weeks after that for early stopping and calibration")
    test_weeks: float = setting(4.0, "weeks after that to be scored; what comes later is scored too")
    train_until: str = setting("", "last day to learn from, such as 2024-03-31, instead of the weeks; empty: by weeks")
    test_from: str = setting("", "first day to be scored, such as 2024-04-01; empty: the day after the last learnt")

    def __post_init__(self) -> None:
        for name in ("train_weeks", "validation_weeks", "test_weeks"):
            _require(getattr(self, name) > 0, f"split.{name}", getattr(self, name), "above 0")
        for name in ("train_until", "test_from"):
            _require(_is_date(getattr(self, name)), f"split.{name}", getattr(self, name), "a date such as 2024-03-31")
        dates = self.train_until, self.test_from
        _require(not all(dates) or dates[0] < dates[1], "split.test_from", dates[1], f"after {dates[0]} (train_until)")


@dataclass(frozen=True)
class WindowConfig:
    """What the model sees around an event."""

    unit: Literal["days", "events", "sessions"] = setting("days", "count the window in local days, events or sessions")
    length: int = setting(3, "w: days before the event's own day (or events, or sessions before its own)")
    session_minutes: float = setting(30.0, "a longer pause between the starts of two events begins a new session")
    mode: Literal["day", "past"] = setting(
        "day",
        "day: the rest of the event's own day or session may be seen (the paper); past: nothing later than the event",
    )
    max_events: int = setting(48, "windows longer than this keep the latest events")
    past_share: float = setting(0.5, "share of training windows cut at a random event, so that `past` is familiar")

    def __post_init__(self) -> None:
        _require(self.length >= 0, "window.length", self.length, "0 or more")
        _require(self.session_minutes > 0, "window.session_minutes", self.session_minutes, "above 0")
        _require(self.max_events >= 1, "window.max_events", self.max_events, "1 or more")
        _require(0 <= self.past_share <= 1, "window.past_share", self.past_share, "between 0 and 1")


@dataclass(frozen=True)
class ModelConfig:
    """The dual Transformer."""

    width: int = setting(64, "D, the embedding size (the paper searches 32, 64, 128)")
    feature_blocks: int = setting(1, "M1, blocks of the feature-level Transformer")
    event_blocks: int = setting(4, "M2, blocks of the event-level Transformer (the paper searches 3, 4, 5)")
    heads: int = setting(4, "attention heads")
    dropout: float = setting(0.05, "p of the dropout after each feature's embedding; it carries the EU")
    aleatoric: bool = setting(True, "predict variances (AU); off: plain squared error and cross-entropy")
    epistemic: bool = setting(True, "Monte-Carlo dropout at inference (EU); off: one pass without dropout")
    variance_rate: float = setting(
        1.0, "how fast log-variances learn, as a share of the rest; below 1 they also begin the same for all events"
    )
    trips: Literal["none", "summary", "embedding"] = setting("none", "how the trip to a stay enters the model")
    trip_size: int = setting(16, "length of each trip vector (shape, speed)")
    log_duration: bool = setting(False, "model log(1 + duration); the paper models plain minutes")
    ends_seen: bool = setting(
        False,
        "stays: tell the network which ends were observed (masked as the other fields, never scored), and learn less "
        "from times that nobody saw",
    )
    network: Literal["dual", "memory", "none"] = setting(
        "dual",
        "dual: the paper's network and its score; memory: habits and a network that attends to own places; "
        "none: habits alone",
    )
    places: int = setting(24, "own places that the memory network attends to, the most visited ones")

    def __post_init__(self) -> None:
        for name in ("width", "feature_blocks", "event_blocks", "heads", "trip_size", "places"):
            _require(getattr(self, name) >= 1, f"model.{name}", getattr(self, name), "1 or more")
        _require(self.width % self.heads == 0, "model.width", self.width, f"a multiple of heads ({self.heads})")
        _require(0 <= self.dropout < 1, "model.dropout", self.dropout, "at least 0 and below 1")
        _require(0 < self.variance_rate <= 1, "model.variance_rate", self.variance_rate, "above 0 and at most 1")
        if self.epistemic:
            _require(self.dropout > 0, "model.dropout", self.dropout, "above 0 where epistemic is on")


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is fitted."""

    mask_ratio: float = setting(0.15, "share of a window's events that are masked (the paper searches 0.05 … 0.3)")
    noise_samples: int = setting(50, "T of the categorical likelihood in training")
    category_weight: float = setting(1.0, "λ, the weight of the categorical losses")
    batch_size: int = setting(128, "windows per step")
    learning_rate: float = setting(1e-3, "peak learning rate")
    weight_decay: float = setting(1e-5, "weight decay")
    optimizer: Literal["adam", "adamw"] = setting("adam", "the paper's Adam (L2 in the gradient) or AdamW")
    schedule: Literal["constant", "cosine"] = setting("constant", "learning rate over time; both warm up")
    warmup_steps: int = setting(0, "steps of linear warm-up")
    clip_norm: float = setting(1.0, "gradients are clipped to this norm; 0: never")
    epochs: int = setting(300, "at most this many passes over the training windows")
    patience: int = setting(10, "stop after this many epochs without a better validation loss")
    max_minutes: float = setting(0.0, "stop after this much wall time; 0: no limit")
    validation_share: float = setting(0.1, "share of the early-stopping agents that each epoch is validated on")
    precision: Literal["auto", "fp32", "bf16"] = setting("auto", "auto: bf16 on a GPU that has it, else fp32")
    compile: Literal["auto", "on", "off"] = setting(
        "auto", "torch.compile; auto: on a GPU, where the run is long enough to pay for it"
    )
    graphs: Literal["auto", "off"] = setting(
        "auto", "auto: on a GPU a step's work is recorded once per window length and replayed as one; off: never"
    )
    robust: float = setting(0.0, "share of the worst-fitting windows left out of each step, against dirty data")
    checkpoint_minutes: float = setting(1.0, "write a checkpoint at least this often when a directory is given")
    tensorboard: bool = setting(False, "write TensorBoard's files beside log.jsonl (needs the package tensorboard)")

    def __post_init__(self) -> None:
        _require(0 < self.mask_ratio < 1, "training.mask_ratio", self.mask_ratio, "between 0 and 1")
        for name in ("noise_samples", "batch_size", "epochs", "patience"):
            _require(getattr(self, name) >= 1, f"training.{name}", getattr(self, name), "1 or more")
        _require(self.learning_rate > 0, "training.learning_rate", self.learning_rate, "above 0")
        _require(0 < self.validation_share <= 1, "training.validation_share", self.validation_share, "in (0, 1]")
        _require(0 <= self.robust < 1, "training.robust", self.robust, "at least 0 and below 1")


@dataclass(frozen=True)
class ScoringConfig:
    """From the trained network to scores."""

    samples: int = setting(50, "T, Monte-Carlo samples per event")
    neighbours: int = setting(150, "k of the mean distance to the nearest training events; 0: no kNN term")
    knn_target: Literal["visible", "masked"] = setting(
        "visible", "whether the event itself is seen when its embedding for kNN is made"
    )
    knn_scope: Literal["all", "own"] = setting("all", "neighbours among all training events or the entity's own")
    percentiles: Literal["batch", "calibrated"] = setting(
        "batch",
        "ranks among the scored events (the paper) or against the calibration agents' validation week",
    )
    agent_score: Literal["max", "corrected"] = setting(
        "max",
        "an entity's score: its highest event (the paper), or that corrected for how many events it has",
    )
    spread: Literal["none", "max3"] = setting(
        "none", "habits: max3 lets an event take the highest score of itself and its two neighbours"
    )
    counting: Literal["past", "whole"] = setting(
        "past", "habits: visits to a place are counted up to the event, or over the whole scored period"
    )
    absorb_after: int = setting(
        28, "habits: whole weeks that lie more than so many days back enter an entity's history; 0: it stays as trained"
    )
    weights: Literal["unit", "injected"] = setting(
        "unit", "habits: every term counts once, or as suits anomalies injected into the validation week"
    )
    silence: bool = setting(
        False, "habits: no data at hours that usually have some can make an event unusual; off: it is only shown"
    )

    def __post_init__(self) -> None:
        _require(self.samples >= 1, "scoring.samples", self.samples, "1 or more")
        _require(self.neighbours >= 0, "scoring.neighbours", self.neighbours, "0 or more")
        _require(self.absorb_after >= 0, "scoring.absorb_after", self.absorb_after, "0 or more days")


@dataclass(frozen=True)
class Config:
    """Everything that decides a result, in one tree."""

    seed: int = setting(7, "every random choice follows from it")
    extraction: ExtractionConfig = section(ExtractionConfig, "fixes to stays, trips and gaps")
    split: SplitConfig = section(SplitConfig, "train, validation and test by local date")
    window: WindowConfig = section(WindowConfig, "what the model sees around an event")
    model: ModelConfig = section(ModelConfig, "the dual Transformer")
    training: TrainingConfig = section(TrainingConfig, "how the network is fitted")
    scoring: ScoringConfig = section(ScoringConfig, "from the trained network to scores")

    def __post_init__(self) -> None:
        memory, unit = self.model.network == "memory", self.window.unit
        _require(not memory or unit != "sessions", "window.unit", unit, "days or events where model.network is memory")

    @property
    def by_habits(self) -> bool:
        """Whether events are compared with what their own entity usually does; else the paper's score."""
        return self.model.network != "dual"

    # -------------------------------------------------------------------------------------- making one
    @classmethod
    def preset(cls, name: str, **changes: Any) -> Config:
        """A named configuration, with changes by dotted name: `Config.preset("paper", **{"model.width": 32})`."""
        if name in FORMER_NAMES:
            progress.say(f"the preset `{name}` is called `{FORMER_NAMES[name]}` now")
            name = FORMER_NAMES[name]
        if name not in PRESETS:
            near = difflib.get_close_matches(name, PRESETS, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"unknown preset '{name}'{hint} (known: {', '.join(PRESETS)})")
        return cls().replace(PRESETS[name]).replace(changes)

    def replace(self, changes: dict[str, Any] | None = None, **more: Any) -> Config:
        """A copy with the settings named by dotted keys changed."""
        content = self.to_dict()
        for key, value in {**(changes or {}), **more}.items():
            *path, last = key.split(".")
            node = content
            for part in path:
                node = node.setdefault(part, {})
                if not isinstance(node, dict):
                    raise ConfigError(f"'{key}': '{part}' is a setting, not a section")
            node[last] = value
        return Config.from_dict(content)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Config:
        return _read(cls, _translate(content), "")

    @classmethod
    def from_yaml(cls, path: Path | str, preset: str | Config = "paper") -> Config:
        """A YAML file of the same tree; what it leaves out comes from `preset: NAME` in it, or else from `preset`,
        which may be a configuration too."""
        content = read_yaml(Path(path))
        preset = content.pop("preset", preset)
        base = preset if isinstance(preset, Config) else cls.preset(preset)
        return base.replace(dict(_flatten(content)))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_yaml(self, path: Path | str | None = None) -> str:
        text = yaml.safe_dump(self.to_dict(), sort_keys=False)
        if path is not None:
            Path(path).write_text(text)
        return text


#: What each preset changes against the defaults above. `paper` is the paper to the letter.
PRESETS: dict[str, dict[str, Any]] = {
    "best": {
        "model.network": "memory",
        "model.event_blocks": 3,
        "model.log_duration": True,
        "model.ends_seen": True,
        "training.noise_samples": 10,
        "training.batch_size": 256,
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
        "training.warmup_steps": 100,
        "training.optimizer": "adamw",
        "training.epochs": 20,
        "training.patience": 5,
        "scoring.samples": 16,
        "scoring.percentiles": "calibrated",
        "scoring.spread": "max3",
    },
    # The settings of a network are for events that habits cannot tell apart (`periods.beyond_habits`).
    "quick": {
        "model.network": "none",
        "model.width": 32,
        "model.event_blocks": 2,
        "model.log_duration": True,
        "training.noise_samples": 10,
        "training.learning_rate": 3e-3,
        "training.schedule": "cosine",
        "training.warmup_steps": 50,
        "training.optimizer": "adamw",
        "training.epochs": 40,
        "training.patience": 8,
        "scoring.samples": 16,
        "scoring.neighbours": 50,
        "scoring.percentiles": "calibrated",
        "scoring.spread": "max3",
    },
    "paper": {"model.trips": "embedding", "window.past_share": 0.0},
}
#: What presets were called before version 0.3.
FORMER_NAMES = {"default": "best", "fast": "quick"}

T = TypeVar("T")


def _flatten(content: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, dict):
            pairs += _flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def _translate(content: dict[str, Any]) -> dict[str, Any]:
    """Settings as version 0.2 wrote them in the words of today: habits were a method beside a network."""
    scoring = content.get("scoring")
    if not isinstance(scoring, dict) or "method" not in scoring:
        return content
    rest = {name: value for name, value in scoring.items() if name != "method"}
    model = content.get("model", {})
    if scoring["method"] == "habits" and model.get("network", "dual") == "dual":
        model = {**model, "network": "none"}
    return {**content, "scoring": rest, "model": model}


def _read(kind: type[T], content: dict[str, Any], where: str) -> T:
    """Build a settings class from a mapping; unknown keys and wrong types are refused with a suggestion."""
    hints = typing.get_type_hints(kind)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # kind is always a dataclass here
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean '{where}{near[0]}'?" if near else f" (known: {', '.join(known)})"
            raise ConfigError(f"unknown setting '{where}{key}'{hint}")
        values[key] = _convert(hints[key], value, f"{where}{key}")
    return kind(**values)


def _convert(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"'{name}' is a section, got {_shown(value)}")
        return _read(hint, value, f"{name}.")  # type: ignore[arg-type]  # a dataclass type, not an instance
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(map(str, choices))}, got {_shown(value)}")
        return value
    if origin in (Union, types.UnionType):
        return value
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str):  # YAML reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            pass
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} must be a {hint.__name__}, got {_shown(value)}")
    return value
