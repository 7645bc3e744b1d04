"""Our judge with its sources: each entity's own history (`habits`) and, where the configuration asks for it, the
network that attends to the entity's places.

`fit_habit_judge` learns both from event tables as the detector has them; a judge is kept as Parquet, JSON and
safetensors beside the rest of a model directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ustad.config import Config
from ustad.dataset import event_days
from ustad.events.encoder import Encoder
from ustad.habits.habit_files import load_habits, read_facts, save_habits
from ustad.habits.habit_model import HabitModel
from ustad.habits.habit_source import HabitSource
from ustad.habits.history import Habits
from ustad.schema import EventSchema
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.incident_rate import Count, count_incidents
from ustad.tables import agent_codes, identity_hash

if TYPE_CHECKING:
    import torch

    from ustad.network.inference.memory_model import MemoryModel

#: Days that calibrate at least, where there are twice as many.
WEEK = 7


@dataclass(frozen=True)
class HabitJudge(AddingJudge):
    """Habits, and the memory network where the configuration asks for it."""

    habits: HabitModel
    memory: MemoryModel | None = None
    counts: tuple[Count, ...] = ()  # how many incidents unusual events of normal people make

    @classmethod
    def of(
        cls, habits: HabitModel, validation: pa.Table, calibrates: np.ndarray | None, memory: MemoryModel | None
    ) -> HabitJudge:
        """From fitted habits and the week that they were calibrated on (`calibrates`: bool by row, all by default)."""
        week = validation if calibrates is None else validation.filter(pa.array(calibrates))
        counts = count_incidents(week, habits.schema, habits.week_score)
        return cls(replace(habits, week_score=np.zeros(0)), memory, tuple(counts))

    @property
    def source(self) -> HabitSource:
        """The memory network answers through the habits, which it needs to be asked."""
        return HabitSource(self.habits)

    # ------------------------------------------------------------------------------------ keeping
    def knows(self, entities: np.ndarray) -> np.ndarray:
        return np.r_[self.habits.habits.entity_key, self.habits.agents.entity_key]

    def forget(self, entities: Sequence[Any]) -> HabitJudge:
        return replace(self, habits=self.habits.forget(list(entities)))

    def with_histories(self, table: pa.Table) -> HabitJudge:
        """The same with the histories of these entities alone, as `habits.parquet` has them."""
        return replace(self, habits=replace(self.habits, habits=Habits.from_table(table)))

    def save(self, place: Path) -> None:
        """Write the files of both sources into a directory, and what the judge knows beside."""
        save_habits(self.habits, place, {"memory": self.memory is not None, "incidents": self.counts})
        if self.memory is not None:
            self.memory.save(place)


def fit_habit_judge(
    train: pa.Table,
    validation: pa.Table,
    encoder: Encoder,
    config: Config,
    device: torch.device,
    memory: MemoryModel | None = None,
    directory: Path | None = None,
    resume: bool = False,
    days_off: tuple[int, ...] = (),
) -> HabitJudge:
    """Learn from the training weeks; the validation week's entities stop the network early (half of them) and
    calibrate (the other half; all of them where no network has to be stopped). `memory` is a memory network that was
    trained already; where it has to be trained, its checkpoints go to `directory`, and `resume` goes on from the last
    one. `days_off` are local dates that habits take for weekend days."""
    schema = encoder.schema
    if config.model.network == "memory" and memory is None:
        memory = fit_memory_model(train, validation, encoder, config, device, directory, resume)
    if memory is None:
        train, validation = take_whole_week(train, validation, schema)
    half = calibrating(validation, schema.entity) if memory is not None else None
    habits = HabitModel.fit(
        train,
        validation,
        schema,
        half,
        counting=config.scoring.counting,
        extra=memory.terms if memory is not None else None,
        absorb_after=config.scoring.absorb_after,
        silence=config.scoring.silence,
        days_off=days_off,
    )
    return HabitJudge.of(habits, validation, half, memory)


def fit_memory_model(
    train: pa.Table,
    validation: pa.Table,
    encoder: Encoder,
    config: Config,
    device: torch.device,
    directory: Path | None = None,
    resume: bool = False,
    start: MemoryModel | None = None,
) -> MemoryModel:
    """The memory network alone, beginning at the weights of `start` where that fits."""
    half = calibrating(validation, encoder.schema.entity)
    stopping = validation.filter(pa.array(~half)) if not half.all() else validation
    from ustad.network.inference.memory_model import MemoryModel

    return MemoryModel.fit(train, stopping, encoder, config, device, directory, resume, start)


def take_whole_week(train: pa.Table, validation: pa.Table, schema: EventSchema) -> tuple[pa.Table, pa.Table]:
    """Where less than a week calibrates and there are two weeks in all, the last of them: weekends are not as weekdays.
    Not where a network has learnt from those days."""
    days = [event_days(table, schema) for table in (train, validation)]
    first, last = (int(days[0].min()), int(days[1].max())) if len(days[0]) and len(days[1]) else (0, 0)
    if last - int(days[1].min(initial=last)) + 1 >= WEEK or last - first + 1 < 2 * WEEK:
        return train, validation
    both = pa.concat_tables([train, validation], promote_options="permissive")
    late = np.concatenate(days) > last - WEEK
    return both.filter(pa.array(~late)), both.filter(pa.array(late))


def calibrating(validation: pa.Table, entity: str) -> np.ndarray:
    """Rows of the entities that calibrate: half of them by a hash, all where a half would be empty. bool [n]."""
    codes, values = agent_codes(validation[entity])
    half = (identity_hash(values) & np.uint64(1)).astype(bool)[codes]
    return np.ones(len(half), bool) if half.all() or not half.any() else half


# ------------------------------------------------------------------------------------------------ storing
def load_habit_judge(
    place: Path, encoder: Encoder, config: Config, device: torch.device, whole: bool = True
) -> HabitJudge:
    """Read what `HabitJudge.save` wrote, but for the habits of entities where not the `whole` is asked for. Nothing in
    it is executed."""
    facts, memory = read_facts(place), None
    if facts["memory"]:
        from ustad.network.inference.memory_model import MemoryModel

        memory = MemoryModel.load(place, encoder, facts["frame"], config, device)
    extra = memory.terms if memory is not None else None
    habits = load_habits(place, encoder.schema, config, extra=extra, whole=whole)
    return HabitJudge(habits, memory, tuple((p, n, k) for p, n, k in facts.get("incidents", ())))
