"""Habits one event at a time in several processes: each scores some of the entities.

In go events, out come their rows in the order of the events: those of `HabitLive`, whose interface this has. Entities
are shared out by their hash. What is held of each entity comes back as bytes with its rows and is kept here, so that
nothing is lost with a process: one that ends is started again and goes on from there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from ustad import progress
from ustad.config import ConfigError
from ustad.files import as_table
from ustad.habits.habit_model import part_of
from ustad.live.habit_live import MOST_ENTITIES, event_columns, latest_events
from ustad.live.habit_state import HabitState
from ustad.live.live_worker import TOLD_APART
from ustad.live.worker_messages import from_plain, receive, send, table_bytes, to_plain
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.alerts import DEFAULT_P_VALUE
from ustad.tables import DataError, identity_hash

if sys.platform == "linux":
    import fcntl

#: A process computes in one thread: the others are beside it.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
#: What a pipe holds of an answer that nobody has read yet, so that a process need not wait to be heard: the most that
#: Linux gives anybody.
_PIPE_BYTES = 1 << 20
#: Recent events of an entity that are kept as context: more than any window shows.
MOST_CONTEXT = 256
Message = tuple[dict[str, Any], Sequence[bytes]]


class _EndedError(Exception):
    """A process ended before it answered."""


class _Process:
    """One worker process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-m", "ustad.live.live_worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.pid, self._part = self._process.pid, settings["part"]
        self.output = cast(BinaryIO, self._process.stdout)
        if sys.platform == "linux":
            with suppress(OSError):  # a user with very many pipes gets no larger ones
                fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.tell(settings)

    def tell(self, content: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
        try:
            send(cast(BinaryIO, self._process.stdin), content, parts)
        except OSError as error:
            raise _EndedError from error

    def hear(self) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to what was told last."""
        try:
            return receive(self.output)
        except (EOFError, OSError) as error:
            raise _EndedError from error

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class ShardedLive:
    """`HabitLive` of a model directory in so many worker processes.

    >>> live = ShardedLive("runs/demo/model", detector.judge, 4)      # doctest: +SKIP
    >>> rows = live.update_many(stays)                                # doctest: +SKIP

    Where an event of a micro-batch is refused, none of them was counted, in no process. A process that ends is started
    again, and asked again once; the second time is an error, and nothing was counted then either.
    """

    def __init__(
        self,
        model: Path | str,
        judge: AddingJudge[Any],
        workers: int,
        since: int | None = None,
        *,
        p_value: float = DEFAULT_P_VALUE,
        reasons: str = "flagged",
        most: int = MOST_ENTITIES,
    ) -> None:
        """`judge` is that of the model; `since` as in `HabitLive`, the day after its histories by default."""
        if workers < 1:
            raise ConfigError(f"worker processes: 1 or more, got {workers}")
        known_until = judge.known_until or 0
        self.schema, self.most = judge.schema, most
        self.since = known_until + 1 if since is None else since
        self._columns = event_columns(self.schema)
        self._settings = {
            "model": str(Path(model).absolute()), "parts": workers, "since": self.since, "p_value": p_value,
            "reasons": reasons,
        }  # fmt: skip
        self._empty = HabitState().to_bytes(pa.Table.from_pylist)
        self._states: OrderedDict[Any, bytes] = OrderedDict()  # what is held of each entity, the latest seen last
        self._gone: set[Any] = set()
        self._forgotten: set[Any] = set()
        self._context: dict[Any, pa.Table] = {}
        self._parts: dict[Any, int] = {}
        self._workers = [_Process({**self._settings, "part": part}) for part in range(workers)]
        for worker in self._workers:
            self._check_start(worker)

    # ------------------------------------------------------------------------------------------ public
    def update(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """As `HabitLive.update`."""
        return self.update_many([event])[0]

    def update_many(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """As `HabitLive.update_many`: each process scores its own entities' events, all at the same time."""
        shares: dict[int, list[int]] = {}
        for i, event in enumerate(events):
            shares.setdefault(self._part(self._entity(event)), []).append(i)
        messages = {
            part: ({"ask": "score", "events": [self._plain(events[i]) for i in mine]}, ())
            for part, mine in shares.items()
        }
        answers = self._ask(messages)
        errors = [answer for answer, _ in answers.values() if "refused" in answer or "failed" in answer]
        if errors:
            self._undo({part: [events[i] for i in shares[part]] for part in shares})
            raise _as_error(errors[0])
        rows: list[dict[str, Any]] = [{}] * len(events)
        for part, (answer, states) in answers.items():
            mine = shares[part]
            for i, row, absences in zip(mine, answer["rows"], answer[TOLD_APART], strict=True):
                rows[i] = self._whole(events[i], row, absences)
            entities = dict.fromkeys(events[i][self.schema.entity] for i in mine)
            self._states.update(zip(entities, states, strict=True))
        self._hold(event[self.schema.entity] for event in events)
        return rows

    def warm(self, events: Any) -> None:
        """As `HabitLive.warm`."""
        latest = latest_events(as_table(events, "context"), self.schema, MOST_CONTEXT)
        self._context.update(latest)
        self._ask_all(self._warming(latest))

    def to_bytes(self, entity: Any) -> bytes:
        """As `HabitLive.to_bytes`."""
        if entity in self._gone:
            raise self._was_let_go()
        return self._states.get(entity, self._empty)

    def from_bytes(self, entity: Any, content: bytes) -> None:
        """As `HabitLive.from_bytes`."""
        self._ask_all({self._part(entity): ({"ask": "restore", "entities": [entity]}, [content])})
        self._gone.discard(entity)
        self._states[entity] = content
        self._hold([entity])

    def missing(self, entity: Any) -> bool:
        """As `HabitLive.missing`."""
        return entity in self._gone

    def forget(self, entity: Any) -> None:
        """As `HabitLive.forget`."""
        self._forgotten.add(entity)
        for records in (self._states, self._context):
            records.pop(entity, None)
        self._gone.discard(entity)
        self._ask_all({self._part(entity): ({"ask": "forget", "entities": [entity]}, ())})
        del self._parts[entity]

    def __len__(self) -> int:
        """Entities at hand."""
        return len(self._states)

    def close(self) -> None:
        """End the processes; they end with this one too."""
        for worker in self._workers:
            worker.close()

    @property
    def strangers(self) -> list[str]:
        """Names of nobody, one for each process."""
        names: dict[int, str] = {}
        while len(names) < len(self._workers):
            name = " " * (len(self._parts) + 1)
            names.setdefault(self._part(name), name)
        return [names[part] for part in sorted(names)]

    @property
    def pids(self) -> list[int]:
        """Of the worker processes."""
        return [worker.pid for worker in self._workers]

    # ------------------------------------------------------------------------------------------ events
    def _entity(self, event: Mapping[str, Any]) -> Any:
        entity = event.get(self.schema.entity)
        if entity is None or event.get(self.schema.time) is None:
            raise DataError(f"an event needs '{self.schema.entity}' and '{self.schema.time}'")
        if entity in self._gone:
            raise self._was_let_go()
        return entity

    def _was_let_go(self) -> DataError:
        return DataError(f"this {self.schema.entity_word} was let go; bring it back with from_bytes first")

    def _part(self, entity: Any) -> int:
        """Whose the entity is; of those met once it is remembered."""
        if entity not in self._parts:
            self._parts[entity] = int(part_of(identity_hash([entity]), len(self._workers))[0])
        return self._parts[entity]

    def _plain(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {name: to_plain(event[name], name) for name in self._columns if name in event}

    def _whole(self, event: Mapping[str, Any], row: dict[str, Any], absences: list[Any]) -> dict[str, Any]:
        """The row as `HabitLive` gives it: with the event's own entity, time and id, absences before a change."""
        names = [name for name in (self.schema.entity, self.schema.time, self.schema.event_id) if name is not None]
        change = row.pop("change", None)
        whole = {**{name: event[name] for name in names if name in event}, **row}
        whole |= {TOLD_APART: from_plain(absences)} if absences else {}
        return whole if change is None else {**whole, "change": change}

    def _hold(self, entities: Iterable[Any]) -> None:
        """These were seen last; let go of those that were quiet longest."""
        for entity in entities:
            self._states.move_to_end(entity)
        quiet: dict[int, list[Any]] = {}
        while len(self._states) > self.most:
            entity = self._states.popitem(last=False)[0]
            self._gone.add(entity)
            quiet.setdefault(self._part(entity), []).append(entity)
        self._ask_all({part: ({"ask": "drop", "entities": entities}, ()) for part, entities in quiet.items()})

    def _undo(self, events: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
        """What was held of these events' entities before them, put back where it was."""
        messages: dict[int, Message] = {}
        for part, own in events.items():
            entities = list(dict.fromkeys(event[self.schema.entity] for event in own))
            contents = [self._states.get(entity, self._empty) for entity in entities]
            messages[part] = {"ask": "restore", "entities": entities}, contents
        self._ask_all(messages)

    # --------------------------------------------------------------------------------------- processes
    def _ask_all(self, messages: Mapping[int, Message]) -> None:
        """Tell processes something; whatever one refuses is an error."""
        for answer, _ in self._ask(messages).values():
            if "refused" in answer or "failed" in answer:
                raise _as_error(answer)

    def _ask(self, messages: Mapping[int, Message]) -> dict[int, tuple[dict[str, Any], list[bytes]]]:
        """All are told before any is heard: they work at the same time."""
        silent, answers = [], {}
        for part, message in messages.items():
            try:
                self._workers[part].tell(*message)
            except _EndedError:
                silent.append(part)
        for part in self._as_they_answer(part for part in messages if part not in silent):
            try:
                answers[part] = self._workers[part].hear()
            except _EndedError:
                silent.append(part)
        for part in silent:
            answers[part] = self._ask_again(part, messages[part])
        return {part: answers[part] for part in messages}

    def _as_they_answer(self, parts: Iterable[int]) -> Iterator[int]:
        """Whoever is done first comes first: its answer is read while the others still work."""
        waiting: dict[Any, int] = {self._workers[part].output: part for part in parts}
        while waiting:
            for output in wait(list(waiting)):
                yield waiting.pop(output)

    def _ask_again(self, part: int, message: Message) -> tuple[dict[str, Any], list[bytes]]:
        """Of a process that is started again, which knows what was held of its entities."""
        progress.warn(f"live scoring: process {part + 1} of {len(self._workers)} ended and is started again")
        try:
            self._start_again(part)
            self._workers[part].tell(*message)
            return self._workers[part].hear()
        except _EndedError:
            self._start_again(part)
            return {"failed": f"process {part + 1} of {len(self._workers)} ended twice with the same events"}, []

    def _start_again(self, part: int) -> None:
        self._workers[part].close()
        worker = self._workers[part] = _Process({**self._settings, "part": part})
        self._check_start(worker)
        own = [entity for entity in self._states if self._part(entity) == part]
        forgotten = [entity for entity in self._forgotten if self._part(entity) == part]
        context = {entity: table for entity, table in self._context.items() if self._part(entity) == part}
        states = [self._states[entity] for entity in own]
        for message in (
            ({"ask": "forget", "entities": forgotten}, ()),
            *self._warming(context).values(),
            ({"ask": "restore", "entities": own}, states),
        ):
            worker.tell(*message)
            worker.hear()

    def _check_start(self, worker: _Process) -> None:
        try:
            answer, _ = worker.hear()
        except _EndedError:
            worker.close()
            raise DataError("live scoring: a worker process ended while it started; see what it printed") from None
        if "refused" in answer:
            raise _as_error(answer)

    def _warming(self, latest: Mapping[Any, pa.Table]) -> dict[int, Message]:
        """Messages with these events, by process."""
        shares: dict[int, list[pa.Table]] = {}
        for entity, table in latest.items():
            shares.setdefault(self._part(entity), []).append(table)
        return {
            part: ({"ask": "warm"}, [table_bytes(pa.concat_tables(tables, promote_options="permissive"))])
            for part, tables in shares.items()
        }


def _as_error(answer: Mapping[str, str]) -> Exception:
    if "refused" in answer:
        return DataError(answer["refused"])
    return RuntimeError(f"live scoring in a worker process: {answer['failed']}")
