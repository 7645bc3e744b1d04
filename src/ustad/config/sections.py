"""The sections of the configuration: every setting with its default and what it is for.

What stands as a `ClassVar` is fixed. A `property` follows from a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Literal

from ustad.config.setting_fields import require, setting

#: Networks that a setting is for, where not all of them use it.
NETWORKS = ("dual", "memory")
PAPER = ("dual",)
HABITS = ("memory", "none")


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
        True, "join pieces at one place unless a fix between them lies elsewhere; off: a gap or a stray fix ends a stay"
    )
    bridge_hours: float = setting(36.0, "silence that ends where it began is part of the stay up to this long")
    reach_m: float = setting(
        0.0,
        "phones that are silent while still: silence that ends within this distance ended on the way from the place, "
        "metres; 0: no such phones, 2.5 distance_m",
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
            require(getattr(self, name) > 0, f"extraction.{name}", getattr(self, name), "above 0")
        for name in ("gap_minutes", "bridge_hours", "reach_m", "max_accuracy_m", "max_speed_kmh"):
            require(getattr(self, name) >= 0, f"extraction.{name}", getattr(self, name), "0 or more")


@dataclass(frozen=True)
class SplitConfig:
    """Train, validation and test by local date."""

    train_weeks: float = setting(
        3.0, "weeks of training from the first day on; longer where the data spans more than 24 weeks"
    )
    validation_weeks: float = setting(1.0, "weeks after that for early stopping and calibration")
    train_until: str = setting("", "last day to learn from, such as 2024-03-31, instead of the weeks; empty: by weeks")
    test_from: str = setting("", "first day to be scored, such as 2024-04-01; empty: the day after the last learnt")
    test_weeks: ClassVar[float] = 4.0  # what short data are divided by; whatever comes later is scored too

    def __post_init__(self) -> None:
        for name in ("train_weeks", "validation_weeks"):
            require(getattr(self, name) > 0, f"split.{name}", getattr(self, name), "above 0")
        for name in ("train_until", "test_from"):
            require(_is_date(getattr(self, name)), f"split.{name}", getattr(self, name), "a date such as 2024-03-31")
        dates = self.train_until, self.test_from
        require(not all(dates) or dates[0] < dates[1], "split.test_from", dates[1], f"after {dates[0]} (train_until)")


@dataclass(frozen=True)
class WindowConfig:
    """What the network sees around an event."""

    unit: Literal["days", "events", "sessions"] = setting(
        "days", "count the window in local days, events or sessions", NETWORKS
    )
    length: int = setting(3, "w: days before the event's own day (or events, or sessions before its own)", NETWORKS)
    session_minutes: float = setting(
        30.0, "a longer pause between the starts of two events begins a new session", NETWORKS
    )
    mode: Literal["day", "past"] = setting(
        "day",
        "day: the rest of the event's own day or session may be seen (the paper); past: nothing later than the event",
        NETWORKS,
    )
    max_events: int = setting(48, "windows longer than this keep the latest events", NETWORKS)

    def __post_init__(self) -> None:
        require(self.length >= 0, "window.length", self.length, "0 or more")
        require(self.session_minutes > 0, "window.session_minutes", self.session_minutes, "above 0")
        require(self.max_events >= 1, "window.max_events", self.max_events, "1 or more")


@dataclass(frozen=True)
class ModelConfig:
    """The dual Transformer."""

    network: Literal["dual", "memory", "none"] = setting(
        "dual",
        "dual: the paper's network and its score; memory: habits (and own values, where a schema scores more than "
        "habits see) with a network that attends to own places; none: the same without a network",
    )
    width: int = setting(64, "D, the embedding size (the paper searches 32, 64, 128)", NETWORKS)
    event_blocks: int = setting(4, "M2, blocks of the event-level Transformer (the paper searches 3, 4, 5)", NETWORKS)
    heads: int = setting(4, "attention heads", NETWORKS)
    dropout: float = setting(0.05, "p of the dropout after each feature's embedding; it carries the EU", NETWORKS)
    uncertainty: Literal["both", "aleatoric", "epistemic", "none"] = setting(
        "both", "predict variances (aleatoric, AU), draw samples by dropout (epistemic, EU), both or neither", NETWORKS
    )
    trips: Literal["none", "summary", "embedding"] = setting(
        "none", "how the trip to a stay enters the model", NETWORKS
    )
    scaling: Literal["spread", "minmax"] = setting(
        "spread", "numbers are centred at the median and divided by their spread, or brought between 0 and 1", PAPER
    )
    feature_blocks: ClassVar[int] = 1  # M1, blocks of the feature-level Transformer
    trip_size: ClassVar[int] = 16  # length of each trip vector (shape, speed)
    places: ClassVar[int] = 24  # own places that the memory network attends to, the most visited ones

    def __post_init__(self) -> None:
        for name in ("width", "event_blocks", "heads"):
            require(getattr(self, name) >= 1, f"model.{name}", getattr(self, name), "1 or more")
        require(self.width % self.heads == 0, "model.width", self.width, f"a multiple of heads ({self.heads})")
        require(0 <= self.dropout < 1, "model.dropout", self.dropout, "at least 0 and below 1")
        if self.epistemic:
            require(self.dropout > 0, "model.dropout", self.dropout, "above 0 where model.uncertainty asks for EU")

    @property
    def aleatoric(self) -> bool:
        """Whether variances are predicted (AU); else plain squared error and cross-entropy."""
        return self.uncertainty in ("both", "aleatoric")

    @property
    def epistemic(self) -> bool:
        """Whether samples are drawn by dropout (EU); else one pass without dropout."""
        return self.uncertainty in ("both", "epistemic")

    @property
    def log_duration(self) -> bool:
        """Whether log(1 + duration) is modelled; the paper models plain minutes."""
        return self.network != "dual"

    @property
    def ends_seen(self) -> bool:
        """Whether the network is told which ends of a stay were observed (masked as other fields, never scored)."""
        return self.network == "memory"


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is fitted."""

    recipe: Literal["paper", "cosine"] = setting(
        "paper",
        "paper: Adam at a rate that is halved where validation stands still for a third of the patience, 50 draws of "
        "the categorical likelihood; cosine: AdamW, 100 steps of warm-up, "
        "then a rate that falls as a cosine, 10 draws, half of the windows cut at a random event as live ones are",
        NETWORKS,
    )
    mask_ratio: float = setting(
        0.15, "share of a window's events that are masked (the paper searches 0.05 … 0.3)", NETWORKS
    )
    batch_size: int = setting(
        128, "windows per step; with place memory, fewer for little data and more for much data on a GPU", NETWORKS
    )
    category_weight: float = setting(1.0, "λ, the weight of the categorical losses (the paper: 1)", PAPER)
    learning_rate: float = setting(1e-3, "learning rate, the highest there is (the paper: starts from 1e-3)", NETWORKS)
    epochs: int = setting(300, "at most this many passes over the training windows", NETWORKS)
    patience: int = setting(10, "stop after this many epochs without a better validation loss", NETWORKS)
    max_minutes: float = setting(0.0, "stop after this much wall time; 0: no limit", NETWORKS)
    acceleration: Literal["auto", "compile", "off"] = setting(
        "auto",
        "auto: on a GPU bf16 where it has it, steps recorded and replayed, the loss compiled in long runs; "
        "compile: the same, compiled however short the run; off: fp32, nothing compiled or recorded",
        NETWORKS,
    )
    weight_decay: ClassVar[float] = 1e-5  # as in the paper
    clip_norm: ClassVar[float] = 1.0  # gradients are clipped to this norm
    validation_share: ClassVar[float] = 0.1  # of the early-stopping entities, validated on each epoch
    checkpoint_minutes: ClassVar[float] = 1.0  # a checkpoint at least this often, where a directory is given

    def __post_init__(self) -> None:
        require(0 < self.mask_ratio < 1, "training.mask_ratio", self.mask_ratio, "between 0 and 1")
        for name in ("batch_size", "epochs", "patience"):
            require(getattr(self, name) >= 1, f"training.{name}", getattr(self, name), "1 or more")
        require(self.category_weight > 0, "training.category_weight", self.category_weight, "above 0")
        require(self.learning_rate > 0, "training.learning_rate", self.learning_rate, "above 0")

    @property
    def optimizer(self) -> str:
        return "adam" if self.recipe == "paper" else "adamw"

    @property
    def schedule(self) -> str:
        return "plateau" if self.recipe == "paper" else "cosine"

    @property
    def warmup_steps(self) -> int:
        return 0 if self.recipe == "paper" else 100

    @property
    def noise_samples(self) -> int:
        """T of the categorical likelihood in training."""
        return 50 if self.recipe == "paper" else 10

    @property
    def past_share(self) -> float:
        """Share of training windows cut at a random event, so that windows of the past are familiar."""
        return 0.0 if self.recipe == "paper" else 0.5

    @property
    def precision(self) -> Literal["auto", "fp32", "bf16"]:
        return "fp32" if self.acceleration == "off" else "auto"

    @property
    def compile(self) -> str:
        return "on" if self.acceleration == "compile" else self.acceleration

    @property
    def graphs(self) -> str:
        return "off" if self.acceleration == "off" else "auto"


@dataclass(frozen=True)
class ScoringConfig:
    """From the trained network and habits to scores."""

    samples: int = setting(50, "T, Monte-Carlo samples per event", NETWORKS)
    neighbours: int = setting(150, "k of the mean distance to the nearest training events; 0: no kNN term", PAPER)
    knn_scope: Literal["all", "own"] = setting("all", "neighbours among all training events or the entity's own", PAPER)
    knn_target: Literal["visible", "masked"] = setting(
        "visible", "whether the event itself is seen or masked when its embedding for kNN is made", PAPER
    )
    percentiles: Literal["batch", "calibrated"] = setting(
        "batch",
        "ranks among the scored events (the paper) or against the calibration agents' validation week",
        PAPER,
    )
    absorb_after: int = setting(
        28,
        "habits: whole weeks that lie more than so many days back enter an entity's history; 0: it stays as trained",
        HABITS,
    )

    def __post_init__(self) -> None:
        require(self.samples >= 1, "scoring.samples", self.samples, "1 or more")
        require(self.neighbours >= 0, "scoring.neighbours", self.neighbours, "0 or more")
        require(self.absorb_after >= 0, "scoring.absorb_after", self.absorb_after, "0 or more days")
