"""How large networks are and how long they are trained in an experiment: the same for every deep method."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass
from typing import Any

from ustad.config import ConfigError
from ustad.lab.baselines import find

#: Settings of a method and their values, in the order of their names.
Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Budget:
    """The same for every deep method, so that none is ahead by training longer. None: the method's own default."""

    name: str = "paper"
    epochs: int | None = None
    width: int | None = None
    blocks: int | None = None
    samples: int | None = None
    neighbours: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    patience: int | None = None
    passes: float | None = None
    category_weight: float | None = None  # λ of the paper's loss
    injected_share: float = 0.01
    search: int = 0  # trials on validation loss alone, the same for every deep method; 0: none
    changes: Changes = ()  # what is tried on development seeds
    choices: Changes = ()  # what was chosen there for the method of the cell

    def with_changes(self, changes: Changes) -> Budget:
        """The same with some settings of the methods changed, and named after them."""
        words = "".join(f"-{name}={value}" for name, value in changes)
        return dataclasses.replace(self, name=self.name + words, changes=changes)

    def settings(self, method: str) -> dict[str, Any]:
        """Those of the settings that the method has; a change that it does not have is refused."""
        names = {f.name for f in dataclasses.fields(find(method).settings_class)}
        if unknown := {name for name, _ in self.changes} - names:
            raise ConfigError(f"{method} has no setting '{min(unknown)}' (known: {', '.join(sorted(names))})")
        values = {k: v for k, v in asdict(self).items() if v is not None and k in names}
        # The neighbours' maximum is taken of all methods' scores alike, by `incidents`.
        own_score = {"spread": False} if "spread" in names else {}
        choices = {name: value for name, value in self.choices if name in names}
        return {**values, **own_score, **choices, **dict(self.changes)}

    def to_dict(self) -> dict[str, Any]:
        """All of it; what was added later only where it is used, so that results without it keep their keys."""
        later = ("search", "passes", "category_weight", "changes", "choices")
        values = {k: v for k, v in asdict(self).items() if k not in later or v}
        return {k: dict(v) if k in ("changes", "choices") else v for k, v in values.items()}

    @property
    def key(self) -> str:
        apart = ("name", "injected_share", "search", "changes", "choices")
        values = [v for k, v in self.to_dict().items() if k not in apart]
        values += [f"{name}={value}" for name, value in (*self.choices, *self.changes)]
        suffix = f"-search{self.search}" if self.search else ""
        return "-".join("d" if value is None else str(value) for value in values) + suffix


BUDGETS = {
    "paper": Budget("paper"),  # every method until its own validation loss stands still
    "large": Budget("large", batch_size=512, learning_rate=2e-3),
    "huge": Budget("huge", batch_size=2048, learning_rate=3e-3),
    "small": Budget(
        "small", 6, 32, 2, samples=10, neighbours=50, batch_size=32, learning_rate=2e-3, patience=6, injected_share=0.1
    ),
    "tiny": Budget("tiny", epochs=1, width=16, blocks=1, samples=3, neighbours=10, injected_share=0.3),
}
