"""Groups as events come: at the end of a period the same as bulk scoring finds, in whatever order and batches events
came, through restarts and deletions; shown with the run and told once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_example import PlainScorer

from ustad.events.together import FEW, PairTails, name_place, place_keys
from ustad.page.store import Store, now
from ustad.page.translate import keys_for
from ustad.schema import mobility_schema
from ustad.service import pipeline as pipelines
from ustad.service.channels import Notice, Outlets
from ustad.service.keys import COARSE, COUNTS, create_key
from ustad.service.live_groups import groups_table, latest_groups
from ustad.service.notices import Notifier
from ustad.service.pipeline import Job, Pipeline, ScoreBatch
from ustad.service.retention import expire
from ustad.tables import TIMESTAMP, identity_hash
from ustad.triage.groups import find_groups

SCHEMA = mobility_schema()
HOUR, NOON = 3_600_000_000, 19_700 * 86_400_000_000 + 12 * 3_600_000_000
DAY = 24.0
#: A week of 8,000 pairs: two newcomers are rare where few people go.
TWO_NEW: Any = PairTails.fit(
    np.r_[np.zeros(7_500, int), np.ones(498, int), [2, 2]], np.r_[2 + np.arange(7_998) % 3, [5, 5]]
)
#: The same where guests are rare too.
ONE_NEW: Any = PairTails.fit(
    np.r_[np.zeros(39_992, int), np.ones(6, int), [2, 2]], np.r_[2 + np.arange(39_998) % 3, [5, 5]]
)
Visit = dict[str, Any]


def visit(agent: str, place: str, first: float, last: float, new: bool = True) -> Visit:
    """From hours to hours after noon."""
    moments = {"started_at": NOON + int(first * HOUR), "finished_at": NOON + int(last * HOUR)}
    return {"agent": agent, "poi_id": place, "new": new, **moments}


def score_of(one: Visit) -> float:
    return (one["started_at"] // HOUR * 7 + len(one["agent"])) % 30 / 10


class KnowingScorer(PlainScorer):
    """Knows which visits are somewhere new, and how rare pairs are."""

    def __init__(self, visits: Sequence[Visit], tails: PairTails) -> None:
        super().__init__()
        self.together = tails
        self._visits = {(one["agent"], one["started_at"]): one for one in visits}

    def score(self, rows: Any) -> ScoreBatch:
        scores = []
        for row in rows:
            one = self._visits[row["agent"], row["started_at"]]
            answer = {"expected": 0.0 if one["new"] else 3.0, "observed": 1.0, "surprise": 1.0, "share": 0.5}
            evidence = [{**dict.fromkeys(("spread", "noise", "doubt")), **answer, "name": name}
                        for name in ("recurrence", "distance")]  # fmt: skip
            score = score_of(one)
            incident = f"i{one['agent']}{one['started_at']}" if score > 1 else None
            scores.append({"score": score, "p_value": 10.0**-score, "alert": False, "kind": "novel", "reason": "new",
                           "evidence": evidence, "incident_id": incident})  # fmt: skip
        return ScoreBatch(["UTC"] * len(scores), scores)


def row_of(one: Visit) -> dict[str, Any]:
    places = {"lat": 60.0, "lon": 24.0, "category": "bar", "poi_id": one["poi_id"], "timezone": "UTC"}
    empty = dict.fromkeys(("event_id", "place_name", "n_fixes", "start_gap_s", "end_gap_s", "observed_s"))
    return {**empty, **places, **{name: one[name] for name in ("agent", "started_at", "finished_at")}}


def bulk_groups(visits: Sequence[Visit], tails: PairTails) -> list[dict[str, Any]]:
    """What bulk scoring finds, with the ids of the store as ids of the events."""
    visits = sorted(visits, key=lambda one: (one["agent"], one["started_at"]))
    keys = keys_for(visits)
    scores = [score_of(one) for one in visits]
    incidents = [
        f"i{one['agent']}{one['started_at']}" if score > 1 else None for one, score in zip(visits, scores, strict=True)
    ]
    table = pa.table(
        {
            "agent_id": [one["agent"] for one in visits],
            "stay_id": [str(key) for key in keys],
            "poi_id": pa.array([one["poi_id"] for one in visits], pa.string()),
            "poi_category": ["bar"] * len(visits),
            **{n: pa.array([one[n] for one in visits], TIMESTAMP) for n in ("started_at", "finished_at")},
            "timezone": ["UTC"] * len(visits),
            "new_place": [one["new"] for one in visits],
            "score": scores,
            "incident_id": pa.array(incidents, pa.string()),
        }
    )
    return plain(find_groups([table], SCHEMA, tails))


def plain(groups: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table of groups; of their events the order says nothing."""
    return [{**row, "event_ids": sorted(row["event_ids"])} for row in groups.to_pylist()]


def live_groups(store: Store) -> list[dict[str, Any]]:
    with store.reading() as connection:
        return plain(groups_table(connection))


def made_up_days(rng: np.random.Generator, agents: int, places: int) -> list[Visit]:
    """Each person somewhere every few hours, often at the same few places; the last place is everybody's."""
    visits = []
    for n in range(agents):
        hour = float(rng.uniform(0, 5))
        for _ in range(int(rng.integers(2, 9))):
            length = float(rng.choice([0.05, 0.5, 2.0, 9.0]))
            place = places if rng.random() < 0.15 else int(rng.integers(0, places))
            name = None if rng.random() < 0.05 else f"poi {place}"
            visits.append(visit(f"p{n}", name, hour, hour + length, bool(rng.random() < 0.7)))  # type: ignore[arg-type]
            hour += length + float(rng.choice([0.0, 0.3, 4.0, 30.0]))
    return visits


def arrivals(visits: Sequence[Visit], rng: np.random.Generator) -> Iterator[list[Visit]]:
    """Micro-batches: people by their ends, but each person's events come late by hours or days of their own."""
    late = {one["agent"]: float(rng.choice([0.0, 1.0, 30.0, 200.0])) * HOUR for one in visits}
    in_order = sorted(visits, key=lambda one: (one["finished_at"] + late[one["agent"]], one["started_at"]))
    while in_order:
        size = int(rng.choice([1, 2, 7, 40]))
        yield in_order[:size]
        in_order = in_order[size:]


def send(pipeline: Pipeline, batch: Sequence[Visit]) -> None:
    jobs = [Job(rows=[row_of(one) for one in batch])]
    pipeline.run(jobs)
    assert isinstance(jobs[0].outcome, dict), jobs[0].outcome


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_groups_at_the_end_of_a_period_are_those_of_bulk_scoring(seed: int, guests_are_rare: bool) -> None:
    rng = np.random.default_rng(seed)
    tails = ONE_NEW if guests_are_rare else TWO_NEW
    visits = made_up_days(rng, agents=int(rng.integers(2, 25)), places=int(rng.integers(1, 12)))
    store = Store("sqlite://")
    pipeline = Pipeline(store, KnowingScorer(visits, tails), None)
    for batch in arrivals(visits, rng):
        if rng.random() < 0.1:  # a restart
            pipeline = Pipeline(store, KnowingScorer(visits, tails), None)
        send(pipeline, batch)
    assert live_groups(store) == bulk_groups(visits, tails)
    gone = str(rng.choice([one["agent"] for one in visits]))
    pipeline.delete_agent(gone, "a test")
    assert all(gone not in group["agent_ids"] for group in live_groups(store))
    store.close()


def test_the_days_that_are_made_up_have_groups_and_places_of_many() -> None:
    number = [0, 0]
    for seed in range(40):
        rng = np.random.default_rng(seed)
        visits = made_up_days(rng, agents=int(rng.integers(2, 25)), places=int(rng.integers(1, 12)))
        number[0] += len(bulk_groups(visits, TWO_NEW))
        people: dict[str, set[str]] = {}
        for one in visits:
            people.setdefault(one["poi_id"], set()).add(one["agent"])
        number[1] += sum(len(names) > FEW for names in people.values())
    assert min(number) > 10


# ------------------------------------------------------------------------------------------- one thing at a time
THREE = [visit("a", "barn", 0, 2), visit("b", "barn", 1, 4), visit("c", "barn", 3, 6)]


def open_pipeline(visits: Sequence[Visit], store: Store, tails: Any = TWO_NEW) -> Pipeline:
    return Pipeline(store, KnowingScorer(visits, tails), None)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store("sqlite://")
    yield store
    store.close()


class Listener:
    name, digest = "all", None

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def send(self, notice: Notice, moment: int) -> None:
        self.notices.append(notice)


def test_a_third_person_joins_a_group_and_nobody_is_told_again(store: Store) -> None:
    pipeline, listener = open_pipeline(THREE, store), Listener()
    notifier = Notifier(store, Outlets("http://page", (listener,)))  # type: ignore[arg-type]  # a channel
    told: list[int] = []
    for one in THREE:
        send(pipeline, [one])
        told.append(notifier.step())
    assert told == [0, 1, 0]
    (notice,) = listener.notices
    assert dict(notice.content) == {
        "type": "group", "group_id": "1", "agent_ids": ["a", "b"], "url": "http://page/run"
    }  # fmt: skip
    assert notice.lines == ("A new group of people: a, b.", "http://page/run")
    (group,) = live_groups(store)
    assert (group["agent_ids"], group["people"]) == (["a", "b", "c"], 3)
    again = Notifier(store, Outlets("http://page", (listener,)))  # type: ignore[arg-type]
    assert again.step() == 0


def test_groups_of_before_are_no_news_to_a_store_that_told_alerts_alone(store: Store) -> None:
    send(open_pipeline(THREE, store), THREE)
    with store.writing() as connection:
        store.remember(connection, "notified", {"alert": 0, "at": now()})
    listener = Listener()
    assert Notifier(store, Outlets("http://page", (listener,))).step() == 0  # type: ignore[arg-type]


def test_a_day_is_told_with_its_groups_in_one_notice(store: Store) -> None:
    listener = Listener()
    listener.digest = 0  # type: ignore[assignment]  # at midnight
    notifier = Notifier(store, Outlets("http://page", (listener,)))  # type: ignore[arg-type]
    send(open_pipeline(THREE, store), THREE)
    midnight = (now() // 86_400_000_000 + 1) * 86_400_000_000
    assert notifier.step(midnight) == 1
    (notice,) = listener.notices
    assert notice.content["groups"] == 1
    assert "1 new group of people: http://page/run" in notice.lines[0]


def test_a_group_goes_when_its_place_turns_out_to_be_everybodys(store: Store) -> None:
    crowd = [visit(f"x{n}", "barn", DAY + n, DAY + n + 0.5, new=False) for n in range(FEW)]
    pipeline = open_pipeline([*THREE, *crowd], store)
    send(pipeline, THREE)
    assert len(live_groups(store)) == 1
    for one in crowd:
        send(pipeline, [one])
    assert live_groups(store) == bulk_groups([*THREE, *crowd], TWO_NEW) == []


def test_a_group_stays_as_it_was_after_four_weeks(store: Store) -> None:
    crowd = [visit(f"x{n}", "barn", 29 * DAY + n, 29 * DAY + n + 0.5, new=False) for n in range(FEW)]
    pipeline = open_pipeline([*THREE, *crowd], store)
    send(pipeline, THREE)
    before = live_groups(store)
    send(pipeline, crowd)
    assert live_groups(store) == before


def test_of_a_group_that_began_four_weeks_ago_no_part_is_told_anew(store: Store) -> None:
    late = visit("x", "barn", 28 * DAY + 0.5, 28 * DAY + 1, new=False)
    pipeline = open_pipeline([*THREE, late], store)
    send(pipeline, THREE)
    before = live_groups(store)
    send(pipeline, [late])
    assert live_groups(store) == before


def test_places_that_the_models_week_knew_as_everybodys_have_no_groups(store: Store) -> None:
    tails = replace(TWO_NEW, crowd_places=identity_hash(["barn"]))
    send(open_pipeline(THREE, store, tails), THREE)
    assert live_groups(store) == []


def test_a_week_says_which_places_are_everybodys() -> None:
    days = range(2_100)
    rows = [
        visit(f"p{n}", "home" if n < 2 else "hall", DAY * day, DAY * day + 8) for n in range(FEW + 3) for day in days
    ]
    is_new = np.zeros(len(rows), bool)
    is_new[[0, len(days)]] = True  # two at home, once
    table = pa.table(
        {
            "agent_id": [one["agent"] for one in rows],
            "poi_id": [one["poi_id"] for one in rows],
            **{n: pa.array([one[n] for one in rows], TIMESTAMP) for n in ("started_at", "finished_at")},
        }
    )
    tails = PairTails.of_week(table, SCHEMA, is_new)
    assert tails is not None
    assert tails.most_people == FEW
    assert tails.crowd_places.tolist() == identity_hash(["hall"]).tolist()
    everything_new = PairTails.of_week(table, SCHEMA, np.ones(len(rows), bool))
    assert everything_new is not None
    assert (everything_new.most_people, everything_new.crowd_places.tolist()) == (0, [])


def test_people_who_were_together_for_too_short_or_came_days_apart_are_no_group(store: Store) -> None:
    short = [visit("a", "barn", 0, 1), visit("b", "barn", 1 - 4.98 / 60, 2)]
    long = [visit("c", "hut", 0, 80), visit("d", "hut", 75, 82)]  # one came three days after the other
    just = [visit("e", "shed", 0, 1), visit("f", "shed", 1 - 5 / 60, 2)]
    every = [*short, *long, *just]
    pipeline = open_pipeline(every, store)
    for one in every:
        send(pipeline, [one])
    assert [group["agent_ids"] for group in live_groups(store)] == [["e", "f"]]
    assert [group["agent_ids"] for group in bulk_groups(every, TWO_NEW)] == [["e", "f"], ["c", "d"]]


def test_a_batch_that_failed_is_found_when_it_comes_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = visit("x", "barn", 9, 10, new=False)
    pipeline = open_pipeline([*THREE, guest], store)
    send(pipeline, THREE[:2])

    def fail(*arguments: Any) -> None:
        raise OSError("after the groups were found")

    with monkeypatch.context() as patch:
        patch.setattr(pipelines, "note_devices", fail)
        with pytest.raises(OSError, match="after the groups"):
            pipeline.run([Job(rows=[row_of(THREE[2])])])
        with pytest.raises(OSError, match="after the groups"):
            pipeline.run([Job(rows=[row_of(guest)])])
    assert [(group["agent_ids"], group["people"]) for group in live_groups(store)] == [(["a", "b"], 2)]
    send(pipeline, [guest])
    assert [(group["agent_ids"], group["people"]) for group in live_groups(store)] == [(["a", "b"], 3)]
    send(pipeline, THREE[2:])
    assert [(group["agent_ids"], group["people"]) for group in live_groups(store)] == [(["a", "b", "c"], 4)]


def test_who_is_forgotten_is_in_no_group_and_those_who_are_left_still_are(store: Store) -> None:
    pipeline = open_pipeline(THREE, store)
    send(pipeline, THREE)
    pipeline.delete_agent("a", "a test")
    assert live_groups(store) == bulk_groups(THREE[1:], TWO_NEW)
    assert [group["agent_ids"] for group in live_groups(store)] == [["b", "c"]]
    pipeline.delete_agent("b", "a test")
    assert live_groups(store) == []


def test_groups_go_with_the_events_that_are_kept_no_longer(store: Store) -> None:
    later = [visit("a", "hut", 90 * DAY, 90 * DAY + 1), visit("b", "hut", 90 * DAY, 90 * DAY + 2)]
    pipeline = open_pipeline([*THREE, *later], store)
    send(pipeline, [*THREE, *later])
    assert len(live_groups(store)) == 2
    with store.reading() as connection:
        shown = latest_groups(connection)
    assert [group["agent_ids"] for group in shown] == [["a", "b"]]  # of the latest weeks
    expire(store, NOON + int(30 * DAY * HOUR))
    assert [group["agent_ids"] for group in live_groups(store)] == [["a", "b"]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=1, max_size=5))
def test_one_event_is_at_the_place_that_a_table_says(corners: list[tuple[float, float]]) -> None:
    corners = [(abs(lat), abs(lon)) for lat, lon in corners]  # numpy has a zero below zero too
    table = pa.table({"lat": [lat for lat, _ in corners], "lon": [lon for _, lon in corners]})
    nameless = replace(SCHEMA, habitat=None)
    names = [name_place(row, nameless) for row in table.to_pylist()]
    assert identity_hash(names).tolist() == place_keys(table, nameless).tolist()


def test_a_place_without_a_name_or_a_position_is_not_known() -> None:
    nameless = replace(SCHEMA, habitat=None)
    assert name_place({"lat": None, "lon": 1.0}, nameless) is None
    assert name_place({"lat": float("nan"), "lon": 1.0}, nameless) is None
    assert name_place({"lat": 1.0, "lon": 1.0, "poi_id": None}, SCHEMA) is None
    assert name_place({"lat": 1.0, "lon": 1.0, "poi_id": 7}, SCHEMA) == "7"


# ------------------------------------------------------------------------------------------------- the service
def stay_of(one: Visit) -> dict[str, Any]:
    moments = {n: str(np.datetime64(one[n], "us")) + "Z" for n in ("started_at", "finished_at")}
    return {"agent_id": one["agent"], "lat": 60.0, "lon": 24.0, "poi_id": one["poi_id"], "poi_category": "bar",
            "timezone": "UTC", **moments}  # fmt: skip


def test_the_run_shows_live_groups_through_restarts_to_who_may_see_people(open_client: Any, any_store_url: str) -> None:
    for one in THREE:
        client = open_client(KnowingScorer(THREE, TWO_NEW), store=any_store_url)
        client.post("/v1/events", json={"events": [stay_of(one)]}).raise_for_status()
    (group,) = client.get("/v1/run").json()["together"]
    assert group["agent_ids"] == ["a", "b", "c"]
    assert group["p_value"] == pytest.approx(1 / 8001)
    assert group["finished_at"] == NOON + 4 * HOUR
    assert group["reason"].startswith("At the same place, a bar, at 13:00 on 9 December: a, b and c.")
    service = client.app.state.service
    for role in ("read", "admin", COARSE, COUNTS):
        key = create_key(service.store, role, [role])
        service.keys.read_again()
        answer = client.get("/v1/run", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == (200 if role == "read" else 403)
    device = create_key(service.store, "phone", [], agent="a")
    service.keys.read_again()
    assert client.get("/v1/run", headers={"Authorization": f"Bearer {device}"}).status_code == 403


def test_a_deletion_takes_a_person_out_of_what_the_run_shows(open_client: Any, store_url: str) -> None:
    client = open_client(KnowingScorer(THREE, TWO_NEW), store=store_url)
    client.post("/v1/events", json={"events": [stay_of(one) for one in THREE]}).raise_for_status()
    client.delete("/v1/agents/c").raise_for_status()
    (group,) = client.get("/v1/run").json()["together"]
    assert group["agent_ids"] == ["a", "b"]
    assert " c" not in group["reason"]


def test_a_model_that_knows_no_pairs_finds_no_groups(open_client: Any) -> None:
    scorer = KnowingScorer(THREE, TWO_NEW)
    scorer.together = None  # type: ignore[assignment]
    client = open_client(scorer)
    client.post("/v1/events", json={"events": [stay_of(one) for one in THREE]}).raise_for_status()
    assert client.get("/v1/run").json()["together"] == []
