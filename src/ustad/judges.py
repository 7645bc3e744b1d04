"""Which judge a configuration has, and which sources of evidence it asks: the one place that knows them all.

A `Trainer` learns from event tables as the detector has them, `load_judge` reads what a judge has saved. A further
source is a folder of its own and a line in `SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ustad import artefact
from ustad.calendar_days import Calendar
from ustad.config import Config, ConfigError
from ustad.events.encoder import Encoder
from ustad.evidence_source import ModelContent, OtherSource, S, SourceFit, Training
from ustad.habits.habit_source import HabitSource
from ustad.lessons import STOPPING, Lessons, split_entities, take_whole_week
from ustad.own_values.value_features import value_features
from ustad.own_values.value_source import ValueSource
from ustad.schema import EventSchema
from ustad.scoring.adding_judge import AddingJudge, read_judge
from ustad.scoring.judge import Judge
from ustad.scoring.paper_judge import TENSORS as PAPER_ARRAYS
from ustad.scoring.paper_judge import PaperJudge
from ustad.turns import short_turns

if TYPE_CHECKING:  # networks are loaded where one is trained or asked, so that the preset quick can do without torch
    from ustad.network.inference.paper_network import PaperNetwork

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


def divide_periods(
    config: Config, train: pa.Table, validation: pa.Table, schema: EventSchema
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Events of the training weeks, and of validation by who stops training early and by who calibrates. Our judge
    wants a whole week of most people for its rare p-values; the paper's has halves of what it was given."""
    if is_by_paper(config):
        return train, *split_entities(validation, schema.entity)
    train, validation = take_whole_week(train, validation, schema)
    return train, *split_entities(validation, schema.entity, STOPPING)


# ------------------------------------------------------------------------------------------------ sources
def _find_memory() -> type[OtherSource]:
    from ustad.network.inference.memory_model import MemoryModel

    return MemoryModel


#: Sources beside habits, by the fact that each leaves in the judge's file: whether a configuration asks one about
#: events of a schema, and its class.
SOURCES: dict[str, tuple[Callable[[Config, EventSchema], bool], Callable[[], type[OtherSource]]]] = {
    "values": (lambda _, schema: bool(value_features(schema)), lambda: ValueSource),
    "memory": (lambda config, _: config.model.network == "memory", _find_memory),
}


# ------------------------------------------------------------------------------------------------ fitting
@dataclass
class Trainer(Training):
    """Fits the judge of a configuration. A cluster takes over the long steps (`engine/train_job.py`)."""

    def fit(self, lessons: Lessons) -> Judge:
        if is_by_paper(self.config):
            from ustad.network.inference.paper_network import PaperNetwork

            return self.calibrate(self.fit_source(PaperNetwork, lessons).source, lessons)
        return self.fit_ours(lessons)

    def fit_ours(self, lessons: Lessons) -> AddingJudge:
        """The validation week's entities stop a network early (one in `STOPPING`) and calibrate (the others; all of
        them where no network has to be stopped)."""
        kinds = [find() for is_asked, find in SOURCES.values() if is_asked(self.config, lessons.schema)]
        if not any(kind.stops_early for kind in kinds):
            week = lessons.validation
            lessons = replace(lessons, stopping=week, calibration=week)
        with ThreadPoolExecutor(1) as pool, short_turns(self.trains_on_gpu):
            if self.trains_on_gpu:  # meanwhile the CPU learns habits
                learning = pool.submit(self.fit_source, HabitSource, lessons)
            others = [self.fit_source(kind, lessons) for kind in kinds]
            history = learning.result() if self.trains_on_gpu else self.fit_source(HabitSource, lessons)
            answers = [history.answer(history.week), *(one.answer(history.week) for one in others)]
        sources = (history.source, tuple(one.source for one in others))
        return AddingJudge.fit(sources, history.week, answers, lessons.calibrates)

    def fit_source(self, kind: type[S], lessons: Lessons) -> SourceFit[S]:
        return kind.fit(lessons, self)

    @property
    def trains_on_gpu(self) -> bool:
        """Whether a GPU trains a network beside habits."""
        return self.config.model.network == "memory" and str(self.device).startswith("cuda")

    def calibrate(self, source: PaperNetwork, lessons: Lessons) -> PaperJudge[PaperNetwork]:
        """By the other half of the validation entities."""
        from ustad.paper_fitting import calibrate

        return calibrate(source, *lessons.calibration_week())


def learn_from(
    train: pa.Table,
    validation: pa.Table,
    schema: EventSchema,
    calibrates: np.ndarray | None = None,
    *,
    others: tuple[OtherSource, ...] = (),
    without: tuple[str, ...] = (),
    **settings: Any,
) -> AddingJudge:
    """Our judge of habits and of `others`, which were trained already. `calibrates`: bool by row of `validation`, whose
    entities calibrate; all by default. Questions `without` are left out; `settings` are those of
    `HabitModel.learn_habits`."""
    calibrates = np.ones(validation.num_rows, bool) if calibrates is None else calibrates
    habits, week, answers = HabitSource.learn(train, validation, schema, calibrates, **settings)
    answers_of_all = [answers, *(one.answer(week) for one in others)]
    return AddingJudge.fit((habits, others), week, answers_of_all, calibrates, without=without)


# ------------------------------------------------------------------------------------------------ loading
def load_judge(
    path: Path, encoder: Encoder, config: Config, device: Any, *, whole: bool, files: Collection[str]
) -> Judge:
    """Read what a judge saved, from the `files` that were checked. Where not the `whole` is asked for, histories and
    reference events are left on disk. Nothing read is executed."""
    if is_by_paper(config):
        from ustad.paper_fitting import load_paper

        arrays = artefact.arrays(path / PAPER_ARRAYS, "" if whole else "neighbours.")
        return load_paper(ModelContent(path, encoder, config, device, files, arrays))
    content = ModelContent(path, encoder, config, device, files, *read_judge(path), whole=whole)
    others = tuple(find().load(content) for fact, (_, find) in SOURCES.items() if content.facts.get(fact))
    return AddingJudge.load(HabitSource.load(content), others, content.arrays, content.facts)
