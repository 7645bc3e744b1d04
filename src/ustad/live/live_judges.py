"""Who scores live for a judge: the one place that maps them.

In goes a fitted judge; out comes a scorer that takes one event at a time. Networks are loaded where one is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any, Protocol

from ustad.config import ConfigError
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.paper_judge import PaperJudge


class Live(Protocol):
    """One event at a time, for any interleaving of entities."""

    @property
    def since(self) -> int | None:
        """The first local day that is counted, where what is held of an entity can leave as bytes."""

    def warm(self, events: Any) -> object:
        """Remember what came before going live."""

    def update(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Score one event and remember it."""

    def update_many(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Score several in their order."""

    def forget(self, entity: Any) -> None:
        """Drop everything held about one entity."""


@singledispatch
def make_live(judge: Any, *, device: Any, p_value: float, most: int) -> Live:
    """The scorer of a judge; state of at most so many entities is at hand."""
    raise ConfigError(f"{type(judge).__name__} scores no single events")


@make_live.register(AddingJudge)
def _(judge: AddingJudge[Any], *, device: Any, p_value: float, most: int) -> Live:
    from ustad.live.habit_live import HabitLive

    return HabitLive(judge, (judge.known_until or 0) + 1, p_value, reasons="all", most=most)  # the slider shows any


@make_live.register(PaperJudge)
def _(judge: PaperJudge[Any], *, device: Any, p_value: float, most: int) -> Live:
    from ustad.live.network_live import LiveScorer

    return LiveScorer(judge, device, p_value=p_value, reasons="flagged")


@singledispatch
def share_live(judge: Any, model: Path, workers: int, *, p_value: float, most: int) -> Any:
    """The scorer of a judge in so many processes that load its `model` themselves, a `ShardedLive`."""
    raise ConfigError(
        "worker processes are for the presets best and quick; this model scores by the paper's network alone"
    )


@share_live.register(AddingJudge)
def _(judge: AddingJudge[Any], model: Path, workers: int, *, p_value: float, most: int) -> Any:
    from ustad.live.sharded_live import ShardedLive

    return ShardedLive(model, judge, workers, p_value=p_value, reasons="all", most=most)
