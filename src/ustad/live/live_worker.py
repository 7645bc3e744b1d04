"""A process that scores live for some of the entities of a model: `ShardedLive` starts it and asks it.

In come messages on its standard input, out go answers on its standard output, one for each. It ends when the input
does. It loads the model itself and keeps the histories of its own entities alone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, cast

from ustad.config import ConfigError
from ustad.detector import Detector
from ustad.habits.habit_source import HabitSource
from ustad.live.habit_live import HabitLive
from ustad.live.worker_messages import from_plain, read_table_bytes, receive, send, to_plain
from ustad.scoring.adding_judge import AddingJudge
from ustad.tables import DataError

#: What of a row is told apart from it: its values are not only numbers and words.
TOLD_APART = "absences"


class Worker:
    """The scorer of one share of the entities, and what it can be asked."""

    def __init__(self, settings: dict[str, Any]) -> None:
        detector = Detector.load(settings["model"], device="cpu")
        judge = cast(AddingJudge[HabitSource], detector.judge)  # `share_live` has looked
        judge = replace(judge, history=judge.history.share(settings["part"], settings["parts"]))
        self.live = HabitLive(
            judge, settings["since"], settings["p_value"], reasons=settings["reasons"], most=sys.maxsize
        )
        self._asked: dict[str, Callable[..., tuple[Any, Sequence[bytes]]]] = {
            "score": self.score, "warm": self.warm, "restore": self.restore, "drop": self.drop, "forget": self.forget,
        }  # fmt: skip

    def answer(self, message: dict[str, Any], parts: Sequence[bytes]) -> tuple[Any, Sequence[bytes]]:
        """The answer to a message; what is wrong with its events is an answer too."""
        try:
            return self._asked[message.pop("ask")](parts=parts, **message)
        except DataError as error:
            return {"refused": str(error)}, ()
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}, ()

    def score(self, events: list[dict[str, Any]], *, parts: Sequence[bytes]) -> tuple[Any, Sequence[bytes]]:
        """Rows of the events, and the states of their entities, in the order in which these come first."""
        rows = [{name: from_plain(value) for name, value in event.items()} for event in events]
        schema = self.live.history.schema
        own = (schema.entity, schema.time, schema.event_id)
        scores, absences = [], []
        for row in self.live.update_many(rows):
            absences.append(to_plain(row.pop(TOLD_APART, [])))
            scores.append({name: value for name, value in row.items() if name not in own})
        entities = dict.fromkeys(row[schema.entity] for row in rows)
        return {"rows": scores, TOLD_APART: absences}, [self.live.to_bytes(entity) for entity in entities]

    def warm(self, *, parts: Sequence[bytes]) -> tuple[Any, Sequence[bytes]]:
        for part in parts:
            self.live.warm(read_table_bytes(part))
        return {}, ()

    def restore(self, entities: list[Any], *, parts: Sequence[bytes]) -> tuple[Any, Sequence[bytes]]:
        for entity, part in zip(entities, parts, strict=True):
            self.live.from_bytes(entity, part)
        return {}, ()

    def drop(self, entities: list[Any], *, parts: Sequence[bytes]) -> tuple[Any, Sequence[bytes]]:
        for entity in entities:
            self.live.drop(entity)
        return {}, ()

    def forget(self, entities: list[Any], *, parts: Sequence[bytes]) -> tuple[Any, Sequence[bytes]]:
        for entity in entities:
            self.live.forget(entity)
        return {}, ()


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal all processes are interrupted: the first one decides
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed
    serve(sys.stdin.buffer, output)


def serve(stream: BinaryIO, output: BinaryIO) -> None:
    """The first message has the settings."""
    import torch

    torch.set_num_threads(1)
    settings, _ = receive(stream)
    try:
        worker = Worker(settings)
    except (ConfigError, DataError) as error:
        send(output, {"refused": str(error)})
        return
    send(output, {})
    while True:
        try:
            message, parts = receive(stream)
        except EOFError:
            return
        send(output, *worker.answer(message, parts))


if __name__ == "__main__":
    main()
