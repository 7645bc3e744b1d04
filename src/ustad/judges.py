"""Which judge a configuration has, and which sources of evidence it asks: the one place that knows them all.

A `Trainer` learns from event tables as the detector has them, `load_judge` reads what a judge has saved. A further
source is a folder of its own and a line in `Trainer.fit_ours` and `LOADERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ustad import model_files, progress
from ustad.calendar_days import Calendar
from ustad.config import Config, ConfigError
from ustad.events.encoder import Encoder
from ustad.evidence_source import Source
from ustad.habits.habit_source import HabitSource
from ustad.own_values.value_features import value_features
from ustad.own_values.value_source import ValueSource
from ustad.periods import STOPPING, Lessons, calibrating
from ustad.schema import EventSchema
from ustad.scoring.adding_judge import AddingJudge, read_judge
from ustad.scoring.judge import Judge
from ustad.scoring.paper_judge import PaperJudge
from ustad.tables import DataError
from ustad.turns import short_turns

if TYPE_CHECKING:  # networks are loaded where one is trained or asked, so that the preset quick can do without torch
    from ustad.network.dual_transformer import DualTransformer
    from ustad.network.inference.memory_model import MemoryModel
    from ustad.network.inference.paper_network import PaperNetwork
    from ustad.network.training.loop import FitResult

#: What scores, by `model.network`, and where own values are compared too.
WORDS = {
    "none": ("Habits alone", "Habits and own values"),
    "memory": ("Habits and a network that attends to own places", "Habits, own values and a network"),
    "dual": ("The paper's network", "The paper's network"),
}


def describe(config: Config, schema: EventSchema | None) -> str:
    """What scores events of a schema, in words."""
    return WORDS[config.model.network][schema is not None and bool(value_features(schema))]


def has_network(config: Config) -> bool:
    """Whether any network is trained or asked."""
    return config.model.network != "none"


def is_by_paper(config: Config) -> bool:
    """Whether the paper's judge scores; else ours."""
    return config.model.network == "dual"


def check_by_paper(config: Config, what: str) -> None:
    """Refuses a configuration without the paper's network, for `what` is about that."""
    if not is_by_paper(config):
        raise ConfigError(f"{what} is of the paper's network; use the preset paper")


def check_calendar(config: Config, calendar: Calendar | None) -> None:
    """Refuses a calendar where nothing compares days."""
    if calendar is not None and is_by_paper(config):
        raise ConfigError("a calendar says which days habits compare; the preset paper has no habits")


def paper_judge(judge: Judge | None) -> PaperJudge[PaperNetwork]:
    """The paper's judge, where that scores."""
    if not isinstance(judge, PaperJudge):
        raise ConfigError("this model holds no network of the paper; train one with the preset paper")
    return judge


# ------------------------------------------------------------------------------------------------ fitting
@dataclass
class Trainer:
    """Fits the judge of a configuration. A cluster takes over the long steps (`engine/train_job.py`)."""

    config: Config
    device: Any
    _: KW_ONLY
    directory: Path | None = None  # where checkpoints go
    resume: bool = False  # whether to go on from the last one
    start: Judge | None = None  # whose weights networks begin with
    days_off: tuple[int, ...] = ()  # local dates that habits take for weekend days
    #: Who answers about the calibration week for a source, by its name.
    stand_ins: dict[str, Source] = field(default_factory=dict)

    def fit(self, lessons: Lessons) -> tuple[Judge, dict[str, Any]]:
        """The judge, and what is said of its training."""
        return self._fit_paper(lessons) if is_by_paper(self.config) else self.fit_ours(lessons)

    def fit_ours(self, lessons: Lessons) -> tuple[AddingJudge, dict[str, Any]]:
        """The validation week's entities stop a network early (one in `STOPPING`) and calibrate (the others; all of
        them where no network has to be stopped)."""
        train, validation, schema = lessons.train, lessons.validation, lessons.encoder.schema
        settings: dict[str, Any] = {"absorb_after": self.config.scoring.absorb_after, "days_off": self.days_off}
        with ThreadPoolExecutor(1) as pool, short_turns(self.trains_on_gpu):
            learn: Callable[..., Any] = HabitSource.learn
            if self.trains_on_gpu:  # meanwhile the CPU learns habits
                week = (train, validation, schema, calibrating(validation, schema.entity, STOPPING))
                habits = pool.submit(HabitSource.learn, *week, **settings)
                learn = lambda *_, **__: habits.result()  # noqa: E731
            networks, training = self.train_networks(lessons)
            calibrates = calibrating(validation, schema.entity, STOPPING) if networks else None
            others = (*self.fit_values(train, validation, schema), *networks)
            week_sources = tuple(self.stand_ins.get(one.name, one) for one in others)
            judge = learn_from(train, validation, schema, calibrates, others=week_sources, learn=learn, **settings)
        return replace(judge, others=others), training

    def fit_values(self, train: pa.Table, validation: pa.Table, schema: EventSchema) -> tuple[Source, ...]:
        """Own values, where the schema scores what habits do not look at. The validation week is compared with those of
        the weeks before it; they are remembered of both."""
        features = value_features(schema)
        if not features:
            return ()
        labels = ", ".join(one.feature.label for one in features)
        progress.say(f"habits do not look at everything here: {labels} are compared with each one's own values")
        self.stand_ins[ValueSource.name] = ValueSource.fit(train, schema)
        both = pa.concat_tables([train, validation], promote_options="permissive")
        return (ValueSource.fit(both, schema),)

    def train_networks(self, lessons: Lessons) -> tuple[tuple[Source, ...], dict[str, Any]]:
        """The networks beside habits, and what is said of their training."""
        if self.config.model.network != "memory":
            return (), {}
        memory = self.train_memory(lessons)
        return (memory,), model_files.training_facts(memory.result)

    @property
    def trains_on_gpu(self) -> bool:
        """Whether a GPU trains a network with place memory."""
        return self.config.model.network == "memory" and str(self.device).startswith("cuda")

    @property
    def first_memory(self) -> MemoryModel | None:
        """The network with place memory whose weights are begun with."""
        return self.start.source("network") if isinstance(self.start, AddingJudge) else None

    def train_memory(self, lessons: Lessons) -> MemoryModel:
        from ustad.network.inference.memory_model import MemoryModel

        lesson = (lessons.train, lessons.stopping, lessons.encoder, self.config, self.device)
        return MemoryModel.fit(*lesson, self.directory, self.resume, self.first_memory)

    def _fit_paper(self, lessons: Lessons) -> tuple[Judge, dict[str, Any]]:
        from ustad.paper_fitting import new_network

        start = paper_judge(self.start).source.network if self.start is not None else None
        network = new_network(lessons.encoder, self.config, self.device, start)
        result = self.train_network(network, lessons)
        progress.say("building the reference and calibrating")
        return self.calibrate(network, lessons), model_files.training_facts(result)

    def train_network(self, network: DualTransformer, lessons: Lessons) -> FitResult:
        from ustad.paper_fitting import train_network

        return train_network(network, lessons, self.config, self.device, directory=self.directory, resume=self.resume)

    def calibrate(self, network: DualTransformer, lessons: Lessons) -> PaperJudge[PaperNetwork]:
        """Neighbours from the training events, calibration from the other half of the validation entities."""
        from ustad.paper_fitting import fit_reference

        week, first = lessons.calibration_week()
        return fit_reference(
            network,
            lessons.encoder,
            self.config,
            lessons.train,
            calibration=week,
            calibration_first_day=first,
            device=self.device,
        )


def learn_from(
    train: pa.Table,
    validation: pa.Table,
    schema: EventSchema,
    calibrates: np.ndarray | None = None,
    *,
    others: tuple[Source, ...] = (),
    without: tuple[str, ...] = (),
    learn: Callable[..., Any] = HabitSource.learn,
    **settings: Any,
) -> AddingJudge:
    """Our judge of habits and of `others`, which were trained already. `calibrates`: bool by row of `validation`, whose
    entities calibrate; all by default. Questions `without` are left out; `settings` are those of `HabitModel.fit`.
    `learn` gives what `HabitSource.learn` does, where somebody has begun with that."""
    calibrates = np.ones(validation.num_rows, bool) if calibrates is None else calibrates
    if calibrates.sum() < 2:
        raise DataError("habits: fewer than two events of the validation week are there to calibrate on")
    habits, week, answers = learn(train, validation, schema, calibrates, **settings)
    return AddingJudge.fit(
        (habits, others), week, [answers, *(one.answer(week) for one in others)], calibrates, without=without
    )


# ------------------------------------------------------------------------------------------------ loading
def load_judge(
    path: Path, encoder: Encoder, config: Config, device: Any, *, whole: bool, files: Collection[str]
) -> Judge:
    """Read what a judge saved, from the `files` that were checked. Where not the `whole` is asked for, histories and
    reference events are left on disk. Nothing read is executed."""
    if is_by_paper(config):
        from ustad.paper_fitting import load_paper

        return load_paper(path, encoder, config, device, whole=whole, files=files)
    content = read_judge(path)
    habits = HabitSource.load(path, encoder.schema, config, content, whole=whole)
    loaders = [load for fact, load in LOADERS.items() if content[1].get(fact)]
    return AddingJudge.load(
        habits, tuple(load(path, encoder, habits.frame, config, device=device) for load in loaders), content
    )


def _load_memory(path: Path, encoder: Encoder, frame: Any, config: Config, *, device: Any) -> Source:
    from ustad.network.inference.memory_model import MemoryModel

    return MemoryModel.load(path, encoder, frame, config, device)


#: Who reads the sources beside habits, by the fact that each leaves in the judge's file; in the order of training.
LOADERS: dict[str, Callable[..., Source]] = {"values": ValueSource.load, "memory": _load_memory}
