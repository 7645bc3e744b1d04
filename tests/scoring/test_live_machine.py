"""Live scores under any interleaving of agents, restarts, failures and forgetting, against bulk scores of the list of
events that came. Histories move on every week. `USTAD_MORE=20` runs so many times as many cases."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from moving_world import FIRST_DAY, KNOWN, disorderly, make
from whole_scores import score_by_habits, with_history

from ustad.habits.habit_source import HabitSource
from ustad.live.habit_live import HabitLive
from ustad.scoring.adding_judge import AddingJudge
from ustad.tables import DataError

MORE = int(os.environ.get("USTAD_MORE", "1"))
SINCE, AGENTS = FIRST_DAY + KNOWN, (0, 1, 2)
ACCIDENTS = ("nothing", "restart", "refuse", "forget")
SAME = ("kind", "visits_now", "new_place")
agents = st.sampled_from(AGENTS)


@pytest.fixture(scope="module")
def model() -> AddingJudge:
    return with_history(make(agents=3)[0], absorb_after=7)


class LiveMachine(RuleBasedStateMachine):
    """The list is what came of each agent since it was last forgotten; the bytes are what a store would hold."""

    model: AddingJudge  # set by the test

    @initialize(seed=st.integers(0, 3))
    def begin(self, seed: int) -> None:
        rows = disorderly(seed).to_pylist()
        self.coming = {agent: [row for row in rows if row["agent_id"] == agent] for agent in AGENTS}
        self.known, self.came = self.model, {agent: [] for agent in AGENTS}
        self.said: dict[int, list[dict[str, Any]]] = {agent: [] for agent in AGENTS}
        self.states: dict[int, bytes] = {}
        self._start()

    def _start(self) -> None:
        """At most two agents are at hand, so that a third is always somewhere else."""
        self.live = HabitLive(self.known, since=SINCE, reasons="all", most=2)
        for agent, content in self.states.items():
            self.live.from_bytes(agent, content)

    def _take(self, agent: int, row: dict[str, Any]) -> None:
        if self.live.missing(agent):
            self.live.from_bytes(agent, self.states[agent])
        update = self.live.update(row)
        self.states[agent] = self.live.to_bytes(agent)
        self.came[agent].append(row)
        self.said[agent].append(update)

    def _feed(self, agent: int, count: int) -> None:
        for _ in range(min(count, len(self.coming[agent]))):
            self._take(agent, self.coming[agent].pop(0))

    @rule(agent=agents, count=st.integers(1, 6), accident=st.sampled_from(ACCIDENTS), after=st.integers(1, 6))
    def feed(self, agent: int, count: int, accident: str, after: int) -> None:
        """Some events of an agent, an accident, and some more of it."""
        self._feed(agent, count)
        if self.came[agent]:
            getattr(self, f"_{accident}")(agent)
        self._feed(agent, after)

    @rule(count=st.integers(1, 8), order=st.randoms(use_true_random=False))
    def feed_in_turns(self, count: int, order: Any) -> None:
        for agent in order.choices(AGENTS, k=count):
            self._feed(agent, 1)

    # ------------------------------------------------------------------------------------------ accidents
    def _nothing(self, agent: int) -> None:
        """All is well."""

    def _restart(self, agent: int) -> None:
        self._start()

    def _refuse(self, agent: int) -> None:
        """An event from before the last one, and one that breaks halfway: neither leaves a trace."""
        if self.live.missing(agent):
            self.live.from_bytes(agent, self.states[agent])
        time, last = self.model.history.schema.time, self.came[agent][-1]
        with pytest.raises(DataError):
            self.live.update({**last, time: last[time].replace(year=2000)})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HabitSource, "explain_one", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                self.live.update({**last, time: last["finished_at"]})
        assert self.live.to_bytes(agent) == self.states[agent]

    def _forget(self, agent: int) -> None:
        """Live and in the model: who comes again is a stranger."""
        self._compare(agent)
        self.live.forget(agent)
        self.known = self.known.forget([agent])
        self.states.pop(agent, None)
        self.came[agent], self.said[agent] = [], []

    # ------------------------------------------------------------------------------------------ what holds
    def teardown(self) -> None:
        for agent in AGENTS if hasattr(self, "live") else ():
            self._compare(agent)

    def _compare(self, agent: int) -> None:
        """What was said of each event is what bulk says of the list."""
        if not self.came[agent]:
            return
        table = pa.Table.from_pylist(self.came[agent])
        bulk, _ = score_by_habits(self.known, table, period=(SINCE, SINCE + 90), reasons="all")
        rows = bulk.sort_by("started_at").to_pylist()
        for said, row in zip(self.said[agent], rows, strict=True):
            assert said["stay_id"] == row["stay_id"]
            assert said["score"] == pytest.approx(row["score"], abs=1e-6)
            assert [said[name] for name in SAME] == [row[name] for name in SAME]


def test_live_scores_are_those_of_bulk_whatever_happens_in_between(model: AddingJudge) -> None:
    machine = type("Machine", (LiveMachine,), {"model": model})
    phases = (Phase.generate,) if MORE == 1 else (Phase.generate, Phase.shrink)  # to shrink takes minutes
    chosen = settings(max_examples=8 * MORE, stateful_step_count=8, phases=phases)
    run_state_machine_as_test(machine, settings=chosen)
