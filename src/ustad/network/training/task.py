"""What a network learns, as the training loop sees it: a loss of some windows, and questions that say when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from ustad.events.windows import EventTensors


@dataclass(frozen=True)
class Validation:
    """`total` is the mean over questions of an event's loss, without the share `left_out` of the largest;
    `without_weights` is the same of losses without weights of fields, where there are such. `fields` are means of the
    parts, over all present targets."""

    total: float
    fields: dict[str, float]
    queries: int
    left_out: float = 0.0
    without_weights: float | None = None


class Task(Protocol):
    """A network with what it is trained on and validated on. The loop knows nothing else of either."""

    label: str  # of the progress bar
    checkpoint: str  # the file's name
    parts: tuple[str, ...]  # of the loss, as `loss` gives them
    questions: int

    @property
    def network(self) -> nn.Module: ...

    @property
    def events(self) -> EventTensors:
        """Of the training windows."""

    def copy(self) -> Task:
        """The same task with a network of its own."""

    def prepare(self, dense: bool, is_compiled: bool) -> None:
        """Before the first step. Dense: shapes of a step depend on the windows' length alone. Compiled: its loss is
        compiled, where it can be."""

    def loss(self, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Windows start … stop [B], padded to `length` -> their mean loss [], and its parts [P]. Never waits for the
        device where it is dense."""

    def validate(self, every: bool = False) -> Validation:
        """The loss of the questions that each epoch is judged by, or of all."""

    def describe_data(self) -> dict[str, object]:
        """What else a checkpoint belongs to, beside settings and windows."""
