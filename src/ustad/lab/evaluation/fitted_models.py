"""One data set and one seed, with the models fitted on it: what the cells of an experiment share.

In go a `Source`, a seed and a `Budget` (size of the networks, length of training); out come fitted detectors – kept
on disk, so that seven experiments train each of them once – and what they measure on the test weeks.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ustad.config import Config, ConfigError, SplitConfig
from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.lab.baselines import find, make
from ustad.lab.baselines.base import Baseline
from ustad.lab.baselines.deep import MaskedPredictor, ask, in_rows, loop_config
from ustad.lab.baselines.fitting import describe_facts
from ustad.lab.baselines.search import has_loss, search
from ustad.lab.baselines.storage import load, save
from ustad.lab.evaluation.budgets import Budget
from ustad.lab.evaluation.sources import Source, open_source
from ustad.lab.evaluation.stopping import was_cut
from ustad.lab.red_team.agent_labels import anomalous_agents
from ustad.network.inference.paper_network import sample_queries, scored_terms
from ustad.network.inference.term_columns import Columns, term_columns
from ustad.schema import mobility_schema
from ustad.scores import Scores
from ustad.scoring.calibration import Parts
from ustad.trip_features import TripFeatures

FIRST_SEED = 7
#: Simulated people that settings are searched on; no figure is reported of them.
PEOPLE_TO_SEARCH = 101
#: The paper's two names for the same network: trained once.
SAME = {"ustad-none": "dual-tr", "ustad-none-trips": "dual-tr-trips"}
USTAD = "ustad-plain"
DEFAULT = "ustad-default"  # our best, no part of the paper
QUICK = "ustad-quick"  # … and without a network
TRIPS = "ustad-trips"  # the paper's, with the way to each stay
#: Methods that are told the way to each stay too, and their names without it. Those for trajectories cannot take it: a
#: day is a series of places to them.
WITH_TRIPS = {
    TRIPS: USTAD,
    **{
        f"{name}-trips": name
        for name in ("mlp", "lstm", "transformer", "lightpath", "dual-tr", "ctle", "sensitive-hue", "nov-online")
    },
}
#: Methods that are the detector itself under a preset.
WHOLE_PRESETS = {DEFAULT: "best", QUICK: "quick"}
#: What a budget changes in a preset of the detector.
_SETTINGS = {
    "epochs": "training.epochs",
    "width": "model.width",
    "blocks": "model.event_blocks",
    "samples": "scoring.samples",
    "neighbours": "scoring.neighbours",
    "patience": "training.patience",
}
#: … and in the paper's alone: our own chooses its batches by the size of the data.
_PAPER_SETTINGS = {
    "batch_size": "training.batch_size",
    "learning_rate": "training.learning_rate",
    "category_weight": "training.category_weight",
}

Window = Literal["day", "past"]
Period = Literal["train", "validation", "test", "before"]


@dataclass(frozen=True)
class Measurement:
    """Events in the order of their table, the parts of their scores, and expected and observed values."""

    events: pa.Table
    parts: Parts
    columns: Columns

    @property
    def agents(self) -> np.ndarray:
        return np.asarray(self.events["agent_id"].to_pylist())


def class_name(method: str) -> str:
    """The name under which a method's class is registered: trips are features of the data, not another class."""
    return WITH_TRIPS.get(SAME.get(method, method), SAME.get(method, method))


class FittedModels:
    """Data, models and measurements of one source and one seed."""

    def __init__(
        self,
        source: Source,
        seed: int,
        budget: Budget,
        work: Path,
        *,
        device: str = "auto",
        fit_minutes: float = 0.0,
        acceleration: str = "auto",
        cut_again: bool = False,
    ) -> None:
        self.source, self.seed, self.budget, self.work, self.device = source, seed, budget, work, device
        self.acceleration = acceleration  # `training.acceleration` of every network
        self.cut_again = cut_again  # whether a stored network that the clock cut is trained anew
        self.fit_minutes = fit_minutes  # the longest that one network is trained; 0: until it stops by itself
        self._measurements: dict[tuple[str, str], Measurement] = {}
        self._preset_scores: dict[str, Scores] = {}
        self._preset_detectors: dict[str, Detector] = {}
        self._chosen: dict[str, dict[str, Any]] = {}
        self.fit_seconds: dict[str, float] = {}  # by model, of those that were fitted (or searched) here
        self.training: dict[str, dict[str, Any]] = {}  # by model: epochs, steps, targets, losses, seconds

    # ------------------------------------------------------------------------------------------- data
    @cached_property
    def data(self) -> Dataset:
        return open_source(self.source, self.work / "data")

    @cached_property
    def data_with_trips(self) -> Dataset:
        """The same whose events have the ways that led to them as features. They are embedded as the paper's preset
        does it, by what the training weeks' trips look like."""
        config = Config.preset("paper").replace({"seed": self.seed})
        trips = TripFeatures.fit(self.data.trips, self.train, config, self.device)
        if trips.how == "none":
            raise ConfigError(f"{self.source.label} has no trips, so no method can be told of them")
        # A name of its own: the detector takes these features as they come instead of looking for trips itself.
        schema = dataclasses.replace(mobility_schema(trips.how, config.model.trip_size), name="mobility with trips")
        return dataclasses.replace(
            self.data, events=trips.attach(self.data.events, self.data.trips), schema=schema, trips=None
        )

    def data_of(self, method: str) -> Dataset:
        """The data as the method is told them."""
        return self.data_with_trips if SAME.get(method, method) in WITH_TRIPS else self.data

    def period(self, name: Period, method: str) -> pa.Table:
        """The events of a period as the method is told them."""
        data = self.data_of(method)
        return getattr(self, name) if data is self.data else data.between(*self._days[name])

    @cached_property
    def _days(self) -> dict[Period, tuple[int, int]]:
        first, validation, test, last = self._boundaries
        return {
            "train": (first, validation - 1),
            "validation": (validation, test - 1),
            "test": (test, last),
            "before": (first, test - 1),
        }

    @cached_property
    def _boundaries(self) -> tuple[int, int, int, int]:
        split = self.data.split(SplitConfig())
        return split.train_first, split.validation_first, split.test_first, split.test_last

    @cached_property
    def train(self) -> pa.Table:
        return self.data.between(*self._days["train"])

    @cached_property
    def validation(self) -> pa.Table:
        return self.data.between(*self._days["validation"])

    @cached_property
    def test(self) -> pa.Table:
        return self.data.between(*self._days["test"])

    @cached_property
    def before(self) -> pa.Table:
        """What came before the test weeks."""
        return self.data.between(*self._days["before"])

    def last_weeks(self, weeks: int) -> pa.Table:
        """The training events of the last so many weeks before the validation week."""
        first, validation, _, _ = self._boundaries
        return self.data.between(max(first, validation - 7 * weeks), validation - 1)

    def first_test_weeks(self, weeks: int) -> pa.Table:
        _, _, test, last = self._boundaries
        return self.data.between(test, min(last, test + 7 * weeks - 1))

    @cached_property
    def labelled_agents(self) -> list[Any]:
        """Agents that a label calls anomalous, with those that count neither way."""
        return list(dict.fromkeys([*anomalous_agents(self.data), *self.data.meta.get("exclude_agents", [])]))

    # ----------------------------------------------------------------------------------------- models
    def fit_model(self, method: str, weeks: int | None = None, equal_steps: bool = False) -> Baseline:
        """The detector of that name, fitted on the training weeks (or the last so many of them).

        With `equal_steps`, fewer weeks may be gone through as many more times: epochs and patience as long in steps.
        """
        method = SAME.get(method, method)
        weeks = self._fewer(weeks)
        part = (f"-{weeks}w" if weeks else "") + ("-equal" if weeks and equal_steps else "")
        place = self.work / "models" / self.source.key / f"{method}{part}-{self.seed}-{self.budget.key}"
        if (place / "method.json").exists():
            model = load(place, self.device)
            if not self._is_to_train_again(f"{method}{part}", model.training):
                self.training[f"{method}{part}"] = model.training
                return model
        settings = self.settings(method)
        if has_loss(class_name(method)):
            settings |= {"acceleration": self.acceleration}
            if self.fit_minutes:
                settings["max_minutes"] = self.fit_minutes / find(class_name(method)).networks
        train = self.last_weeks(weeks) if weeks else self.period("train", method)
        if weeks and equal_steps:
            first, validation, _, _ = self._boundaries
            settings |= _repeat(settings, method, (validation - first) / (7 * weeks))
        with self._record_time(f"{method}{part}"):
            schema = self.data_of(method).schema
            detector: Any = make(class_name(method), schema, self.seed, device=self.device, **settings)
            detector.fit(train, self.period("validation", method))
        self.training[f"{method}{part}"] = detector.training
        save(detector, place)
        return detector

    def settings(self, method: str) -> dict[str, Any]:
        """A method's settings: the budget's and, with a search, those of the lowest validation loss.

        The search is made with the first seed and on people of its own where they are simulated, whatever the seed and
        the people here. It is kept on disk: one choice for all seeds.
        """
        method, known_as = SAME.get(method, method), class_name(method)
        settings = self.budget.settings(known_as)
        if not self.budget.search or not has_loss(known_as):
            return settings
        if method not in self._chosen:
            models = self._models_to_search()
            place = self.work / "searches" / models.source.key / f"{method}-{self.budget.key}"
            changes: dict[str, Any] = {
                "trials": self.budget.search,
                "seed": FIRST_SEED,
                "device": self.device,
                "directory": place,
            }
            train, validation = models.period("train", method), models.period("validation", method)
            with self._record_time(f"{method}-search"):
                choice = search(known_as, train, validation, models.data_of(method).schema, **changes, **settings)
            self._chosen[method] = choice.settings
        return {**settings, **self._chosen[method]}

    def _models_to_search(self) -> FittedModels:
        """Those of the people that settings are searched on: simulated ones of their own, or else the data here."""
        source = self.source.with_people(PEOPLE_TO_SEARCH)
        return (
            self
            if source == self.source
            else FittedModels(source, FIRST_SEED, self.budget, self.work, device=self.device)
        )

    def _is_to_train_again(self, model: str, training: dict[str, Any]) -> bool:
        """Whether a stored network was cut, and cut ones are wanted again: once, if it is not of this run."""
        return self.cut_again and model not in self.training and was_cut(training)

    @contextmanager
    def _record_time(self, model: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.fit_seconds[model] = round(time.perf_counter() - began, 2)

    def preset_scores(self, preset: str) -> Scores:
        """Scores of the test weeks by the detector itself under a preset, with this budget's network and epochs."""
        if preset not in self._preset_scores:
            self._preset_scores[preset] = self.preset_detector(preset).score(self.data)
        return self._preset_scores[preset]

    def preset_detector(self, preset: str) -> Detector:
        """The detector itself under a preset, fitted once and read once."""
        if preset not in self._preset_detectors:
            self._preset_detectors[preset] = self._fit_preset(preset)
        return self._preset_detectors[preset]

    def _fit_preset(self, preset: str) -> Detector:
        if self.budget.changes:
            raise ConfigError(f"preset '{preset}' takes no settings of a method: {dict(self.budget.changes)}")
        names = _SETTINGS | (_PAPER_SETTINGS if preset == "paper" else {})
        changes = {name: getattr(self.budget, key) for key, name in names.items()}
        config = Config.preset(preset).replace({k: v for k, v in changes.items() if v is not None})
        config = config.replace({"training.acceleration": self.acceleration})
        if config.model.network != "none" and self.fit_minutes:
            config = config.replace({"training.max_minutes": self.fit_minutes})
        place = self.work / "models" / self.source.key / f"preset-{preset}-{self.seed}-{self.budget.key}"
        earlier = Detector.load(place, self.device) if place.exists() else None
        if earlier is not None and not self._is_to_train_again(f"preset-{preset}", describe_facts(earlier.facts)):
            detector = earlier
        else:
            with self._record_time(f"ustad-{preset}"):
                detector = Detector(config.replace({"seed": self.seed}), self.device).fit(self.data)
            detector.save(place)
        self.training[f"preset-{preset}"] = describe_facts(detector.facts)
        return detector

    def measure(
        self, method: str = USTAD, window: Window = "day", weeks: int | None = None, equal_steps: bool = False
    ) -> Measurement:
        """What one of the USTAD variants measures on the test weeks.

        On the first two of them alone after fewer `weeks` of training than there are.
        """
        weeks = self._fewer(weeks)
        key = (f"{SAME.get(method, method)}{weeks or ''}{'-equal' if weeks and equal_steps else ''}", window)
        if key not in self._measurements:
            events = self.first_test_weeks(2) if weeks else self.period("test", method)
            detector = detector_of(self.fit_model(method, weeks, equal_steps))
            self._measurements[key] = measure_events(detector, events, self.period("before", method), window)
        return self._measurements[key]

    def reference(self, method: str = USTAD) -> Parts:
        """What a USTAD variant measured of the calibration agents' validation week: normal days."""
        return detector_of(self.fit_model(method)).paper().calibration.parts

    def training_of(self, model: str, method: str) -> dict[str, Any]:
        """How the network behind a cell was trained, in the same words for all; empty where nothing was."""
        facts = self.training.get(model, {})
        return self.training.get(f"preset-{WHOLE_PRESETS[method]}", {}) if method in WHOLE_PRESETS else facts

    def _fewer(self, weeks: int | None) -> int | None:
        """The weeks where they are not all of the training weeks."""
        return None if weeks is None or self.last_weeks(weeks).num_rows == self.train.num_rows else weeks

    def forget(self) -> None:
        """Let go of what was measured; tables and what lies on disk stay."""
        self._measurements.clear()
        self._preset_scores.clear()
        self._preset_detectors.clear()


def _repeat(settings: dict[str, Any], method: str, times: float) -> dict[str, Any]:
    """Epochs and patience (in epochs, too) so many times as long."""
    usual: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(find(method).settings_class)}
    usual |= settings
    return {name: round(times * usual[name]) for name in ("epochs", "patience", "passes") if usual.get(name)}


def detector_of(method: Baseline) -> Detector:
    """The detector inside an ablation."""
    return method.detector  # type: ignore[attr-defined]  # every USTAD variant has one


def measure_events(detector: Detector, events: pa.Table, before: pa.Table, window: Window = "day") -> Measurement:
    """Samples and neighbours of every event, with its window of days (`day`) or nothing later than it (`past`)."""
    source = detector.paper().source
    questions = ask(source.encoder, events, before, dataclasses.replace(source.config.window, mode=window))
    samples, knn = sample_queries(source, questions.arrays, questions.queries)
    parts = Parts.of(scored_terms(source.encoder), samples, knn)
    columns = term_columns(source.encoder, questions.arrays, questions.queries.target, samples)
    order = np.argsort(questions.row, kind="stable")
    return Measurement(
        events, parts.take(order), {name: in_rows(values, questions.row) for name, values in columns.items()}
    )


def look_back_only(method: Baseline) -> Baseline:
    """The same masked predictor, which sees nothing later than the event it is asked about."""
    if isinstance(method, MaskedPredictor):
        window = dataclasses.replace(loop_config(method.settings, method.seed).window, mode="past")
        method._ask = lambda events, context: ask(method.encoder, events, context, window)  # type: ignore[method-assign]  # one switch for all of them
    return method
