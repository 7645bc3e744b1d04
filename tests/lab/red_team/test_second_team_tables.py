"""The second red team on tables of stays: valid data, exact labels, rows that keep every bit."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "simulate"))
from small_towns import AGENTS, digest, rows, seconds, simulation, town

from ustad.cli import app
from ustad.dataset import Dataset, load_directory
from ustad.lab.red_team import second_red_team
from ustad.tables import STAYS, Complaints, check_overlaps, validate

FROZEN_TABLE = "d41ea7fa94d106e8"


@lru_cache(maxsize=4)
def injected(kind: str = "all", size: float = 1.0, share: float = 0.3) -> Dataset:
    return second_red_team(clean(), share, 3, kind=kind, size=size)


def clean() -> Dataset:
    return replace(town(anomalous=0.0), labels=None, agent_labels=None)


def test_any_stays_table_is_edited_without_overlaps_and_labelled_exactly() -> None:
    data, made = clean(), injected()
    validate(made.events, STAYS)
    assert check_overlaps(made.events, Complaints("stays")).equals(made.events)
    labelled = pc.is_in(made.events["stay_id"], made.labels["stay_id"].combine_chunks())
    assert rows(made.events.filter(labelled)) == rows(made.events) - rows(data.events)
    assert made.events.filter(pc.invert(labelled)).num_rows + made.labels.num_rows == made.events.num_rows
    assert len(set(made.events["stay_id"].to_pylist())) == made.events.num_rows
    assert made.agent_labels.num_rows > 0.25 * AGENTS
    assert len(set(made.labels["kind"].to_pylist())) >= 12
    assert seconds(made.labels, "started_at").min() >= simulation().first_us // 1_000_000 + 14 * 86_400
    chosen = made.labels.filter(pc.not_equal(made.labels["role"], "neighbour"))
    assert set(chosen["agent_id"].to_pylist()) == set(made.agent_labels["agent_id"].to_pylist())


def test_rows_of_a_table_that_are_not_labelled_keep_every_bit() -> None:
    data, made = clean(), injected()
    labelled = pc.is_in(made.events["stay_id"], made.labels["stay_id"].combine_chunks())
    rest = made.events.filter(pc.invert(labelled))
    assert rest.equals(data.events.filter(pc.is_in(data.events["stay_id"], rest["stay_id"].combine_chunks())))


def test_trips_of_a_table_join_the_stays_that_are_there() -> None:
    made = injected()
    stays = {key: k for k, key in enumerate(made.events["stay_id"].to_pylist())}
    assert made.trips is not None
    assert made.trips.num_rows > 0.98 * clean().trips.num_rows
    ends = [[stays[key] for key in made.trips[name].to_pylist()] for name in ("origin_stay_id", "destination_stay_id")]
    assert (np.diff(ends, axis=0) == 1).all()
    assert made.trips["started_at"].equals(made.events["finished_at"].take(ends[0]))
    assert made.trips["finished_at"].equals(made.events["started_at"].take(ends[1]))


def test_stays_with_nothing_but_times_and_coordinates_are_enough() -> None:
    bare = clean().events.select(["agent_id", "started_at", "finished_at", "lat", "lon"])
    names = [f"p{agent}" for agent in bare["agent_id"].to_pylist()]
    uneven = pc.add(bare["started_at"], pa.scalar(123_457, pa.duration("us")))
    bare = bare.set_column(0, "agent_id", pa.array(names)).set_column(1, "started_at", uneven)
    bare = bare.append_column("observed_s", pa.array(np.full(len(bare), 300.0)))
    made = second_red_team(Dataset(events=bare), 0.3, 4)
    assert check_overlaps(made.events, Complaints("stays")).equals(made.events)
    new, old = (
        set(zip(*(t[name].to_pylist() for name in bare.column_names), strict=True)) for t in (made.events, bare)
    )
    assert len(new - old) == made.labels.num_rows > 100
    assert made.events.column_names == ["stay_id", *bare.column_names]


def test_the_same_seed_makes_the_same_tables() -> None:
    a, b, c = (second_red_team(clean(), 0.2, seed) for seed in (4, 4, 5))
    assert a.events.equals(b.events)
    assert a.labels.equals(b.labels)
    assert not a.labels.equals(c.labels)


def test_size_zero_and_share_zero_leave_a_table_as_it_is() -> None:
    for made in (second_red_team(clean(), 0.3, 3, size=0.0), second_red_team(clean(), 0.0, 3)):
        assert made.events.equals(clean().events)
        assert made.trips.equals(clean().trips)
        assert made.labels.num_rows == made.agent_labels.num_rows == 0


def test_agents_with_labels_are_left_alone() -> None:
    once = injected(share=0.2)
    twice = second_red_team(once, 0.2, 9)
    assert twice.agent_labels.num_rows > once.agent_labels.num_rows
    known = pc.is_in(twice.labels["agent_id"], once.agent_labels["agent_id"].combine_chunks())
    assert twice.labels.filter(known).equals(once.labels)


def test_the_red_team_on_tables_is_frozen() -> None:
    assert digest(injected()) == FROZEN_TABLE


def test_both_verbs_take_the_second_red_team(tmp_path: Path) -> None:
    simulated, changed = tmp_path / "town", tmp_path / "changed"
    wish = ["--red-team", "second", "--red-team-size", "2"]
    made = CliRunner().invoke(app, [
        "simulate", "--agents", "12", "--days", "10", "--anomalous-share", "0.3", "--red-team-kind", "lingering",
        *wish, "--out", str(simulated),
    ])  # fmt: skip
    assert made.exit_code == 0, made.output
    data = load_directory(simulated)
    assert set(data.labels["kind"].to_pylist()) == {"lingering"}
    given = ["inject", str(simulated), "--kind", "detour", "--share", "0.5", *wish, "--out", str(changed)]
    assert CliRunner().invoke(app, given).exit_code == 0
    kinds = load_directory(changed).agent_labels["kind"].to_pylist()
    assert kinds.count("lingering") == data.agent_labels.num_rows
    assert kinds.count("detour") > 1
    refused = CliRunner().invoke(app, ["inject", str(simulated), "--kind", "swap", *wish, "--out", str(changed)])
    assert refused.exit_code != 0
    for wrong, words in ((["--red-team", "third"], "first, second"), (["--red-team-size", "2"], "--red-team second")):
        refused = CliRunner().invoke(app, ["simulate", *wrong, "--out", str(changed)])
        assert refused.exit_code == 2
        assert words in refused.output
