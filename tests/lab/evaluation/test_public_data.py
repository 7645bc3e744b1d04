"""Public benchmarks from files of the layouts that are published, made here in small."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ustad import __version__
from ustad.cli import main
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.lab.evaluation import experiments
from ustad.lab.evaluation.public_data import BENCHMARKS, busiest_days, choose_agents
from ustad.lab.evaluation.result_files import read_lines
from ustad.lab.evaluation.sources import POL_ATL_ZONE, at_path, open_source, read_pol_atl
from ustad.lab.red_team import inject
from ustad.tables import DataError

AGENTS, DAYS, TEST = 6, 16, 8


def numosim(path: Path) -> Path:
    """Six agents, two stays a day, one of them with an inserted visit."""
    path.mkdir()
    start = datetime(2024, 1, 1)
    rows = [
        (agent, 10 + 2 * agent + night, start + timedelta(days=day, hours=12 * night), day)
        for agent in range(AGENTS) for day in range(DAYS) for night in (0, 1)
    ]  # fmt: skip

    def table(chosen):
        return pa.table({
            "agent_id": [r[0] for r in chosen],
            "poi_id": [r[1] for r in chosen],
            "start_datetime": pa.array([r[2] for r in chosen], pa.timestamp("us")),
            "end_datetime": pa.array([r[2] + timedelta(hours=11) for r in chosen], pa.timestamp("us")),
        })  # fmt: skip

    train, test = (table([r for r in rows if (r[3] >= TEST) == later]) for later in (False, True))
    anomaly = np.array([agent == 3 and i % 7 == 0 for i, agent in enumerate(test["agent_id"].to_pylist())])
    pq.write_table(train, path / "stay_points_train.parquet")
    kinds = pa.array([2 if a else None for a in anomaly], pa.int32())
    labelled = test.append_column("anomaly", pa.array(anomaly)).append_column("anomaly_type", kinds)
    pq.write_table(labelled, path / "stay_points_test_anomalous.parquet")
    places = range(10, 10 + 2 * AGENTS)
    pois = {
        "poi_id": list(places), "name": [str(p) for p in places], "latitude": [34 + p / 1000 for p in places],
        "longitude": [-118.0] * len(places), "act_types": [["Home"]] * len(places),
    }  # fmt: skip
    pq.write_table(pa.table(pois), path / "poi.parquet")
    return path


def geolife(path: Path) -> Path:
    """Two people who go between two places, a fix every half hour, `.plt` files of a day each as published."""
    head = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
    for person in range(2):
        place = path / f"{person:03}" / "Trajectory"
        place.mkdir(parents=True)
        for day in range(60):
            noon = datetime(2008, 10, 1) + timedelta(days=day)
            rows = []
            for half_hour in range(48):
                at = noon + timedelta(minutes=30 * half_hour)
                lat = 39.9 + (0.05 if 10 <= half_hour < 30 else 0.0) + 0.01 * person
                rows.append(f"{lat:.6f},116.300000,0,100,39744.1,{at:%Y-%m-%d},{at:%H:%M:%S}")
            (place / f"{noon:%Y%m%d}000000.plt").write_text(head + "\n".join(rows) + "\n")
    return path


def test_numosim_keeps_every_anomalous_agent_and_some_others(tmp_path):
    source = BENCHMARKS["numosim"].prepare(numosim(tmp_path / "la"), tmp_path / "keep", 3, 7)
    data = open_source(source, tmp_path)
    people = pc.unique(data.events["agent_id"]).to_pylist()
    assert len(people) == 3
    assert 3 in people
    assert data.labels.num_rows > 0
    assert data.split(SplitConfig()).test_first - int(data.days().min()) == TEST
    assert choose_agents(data, 1, 7) == [3]  # no others, and none of the anomalous left out


def test_numosim_without_labels_is_refused(tmp_path):
    place = numosim(tmp_path / "la")
    labelled = place / "stay_points_test_anomalous.parquet"
    pq.write_table(
        pq.read_table(labelled).drop_columns(["anomaly", "anomaly_type"]), place / "stay_points_test_truth.parquet"
    )
    labelled.unlink()
    with pytest.raises(DataError, match="no anomalies are labelled"):
        BENCHMARKS["numosim"].prepare(place, tmp_path / "keep", None, 7)


def test_other_files_under_one_name_are_other_data_with_models_of_their_own(tmp_path, capsys):
    place = numosim(tmp_path / "la")
    few, more = (BENCHMARKS["numosim"].prepare(place, tmp_path / "keep", n, 7) for n in (2, 4))
    assert few.key != more.key
    assert BENCHMARKS["numosim"].prepare(place, tmp_path / "elsewhere", 4, 7).key == more.key
    (tmp_path / "mine").mkdir()
    for text in ("one", "two"):
        (tmp_path / "mine" / "stays.csv").write_text(text)
        assert at_path("mine", tmp_path / "mine").key not in (few.key, more.key)
    first = at_path("mine", tmp_path / "mine").key
    (tmp_path / "mine" / "stays.csv").write_text("one")
    assert at_path("mine", tmp_path / "mine").key != first
    options = ("--methods", "visit-rate,nov-online", "--size", "tiny")
    for agents in (2, 4, 2):
        assert benchmark(capsys, tmp_path, "numosim", place, "--agents", agents, *options)[0] == 0
    lines = read_lines(tmp_path / "results" / "detection.jsonl")
    assert [line["result"]["agents"]["n"] for line in lines] == [2, 2, 4, 4]  # and nothing twice


def test_geolife_without_its_directory_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no such directory"):
        BENCHMARKS["geolife"].prepare(tmp_path / "absent", tmp_path / "keep", None, 7)


def test_geolife_is_eight_weeks_of_stays_that_can_be_injected_into(tmp_path):
    source = BENCHMARKS["geolife"].prepare(geolife(tmp_path / "Data"), tmp_path / "keep", None, 7)
    data = open_source(source, tmp_path)
    assert np.ptp(data.days()) < 56
    assert len(pc.unique(data.events["agent_id"])) == 2
    assert inject(data, "temporal", 0.5, 7).labels.num_rows > 0


def test_the_busiest_days_are_those_of_most_people(tmp_path):
    days = [*range(30), *range(40, 50), *range(40, 50)]
    people = [0] * 30 + [1] * 10 + [2] * 10
    moments = pa.array([datetime(2024, 1, 1, 12) + timedelta(days=d) for d in days], pa.timestamp("us", tz="UTC"))
    table = pa.table({"agent_id": people, "started_at": moments, "timezone": ["UTC"] * len(days)})
    data = Dataset(table)
    assert busiest_days(data, 10) - int(data.days().min()) == 40


def urban(path: Path) -> Path:
    """Three people between two venues, a fix every five minutes, four weeks to learn from and two to test."""
    path.mkdir()
    start = 1_705_276_800  # 2024-01-15
    for name, first, days in (("train", 0, 28), ("test", 28, 14)):
        t = start + 86_400 * first + np.arange(0, 86_400 * days, 300)
        away = (t // 3600 % 24 >= 9) & (t // 3600 % 24 < 17)
        lat = np.where(away, 33_750_000, 33_736_000)
        people = [{"agent": np.full(len(t), a, np.int32), "t": t, "lat_e6": (lat + 500 * a).astype(np.int32),
                   "lon_e6": np.full(len(t), -84_384_000, np.int32)} for a in range(3)]  # fmt: skip
        pq.write_table(pa.concat_tables([pa.table(p) for p in people]), path / f"pol_atl_gps_{name}.parquet")
    venues = {"agent": [0, 0], "t": pa.array([start * 10**9] * 2, pa.timestamp("ns")), "venue_id": [7, 8],
              "venue_type": ["Apartment", "Pub"], "lat": [33.736, 33.75], "lon": [-84.384] * 2}  # fmt: skip
    pq.write_table(pa.table(venues), path / "pol_atl_checkins_train.parquet")
    (path / "pol_atl_labels.csv").write_text("agent_id,outlier_type,degree\n1,Work,RED\n2,Interest,RED\n")
    return path


def test_urban_anomalies_are_read_as_stays_with_labels_of_people(tmp_path):
    source = BENCHMARKS["urban-anomalies"].prepare(urban(tmp_path / "files"), tmp_path / "keep", None, 7)
    data = open_source(source, tmp_path / "keep")
    assert len(pc.unique(data.events["agent_id"])) == 3
    kinds = data.events.filter(pc.equal(data.events["agent_id"], 0))["poi_category"].to_pylist()
    assert kinds.count("Pub") == 42  # once a day
    assert data.agent_labels.select(["agent_id", "kind"]).to_pylist() == [{"agent_id": 1, "kind": "Work"}]
    assert data.meta["exclude_agents"] == [2]  # a change that shows in nothing counts neither way
    assert data.meta["split"]["test_first"] == "2024-02-12"


def test_times_of_urban_anomalies_count_the_wall_clock_of_the_town(tmp_path):
    data = read_pol_atl(urban(tmp_path / "files"))
    pub = data.events.filter(pc.equal(data.events["poi_category"], "Pub"))
    assert set(pc.hour(pc.local_timestamp(pub["started_at"].cast(pa.timestamp("us", POL_ATL_ZONE)))).to_pylist()) == {9}
    assert set(data.events["timezone"].to_pylist()) == {POL_ATL_ZONE}
    days = data.split(SplitConfig())
    of_tests = pc.greater_equal(
        data.events["started_at"], pa.scalar(datetime(2024, 2, 12, 5), pa.timestamp("us", "UTC"))
    )
    assert np.array_equal(data.days() >= days.test_first, of_tests.to_numpy())


def test_a_missing_file_of_urban_anomalies_is_named(tmp_path):
    with pytest.raises(DataError, match="pol_atl_gps_train"):
        BENCHMARKS["urban-anomalies"].prepare(tmp_path, tmp_path / "keep", None, 7)


def benchmark(capsys, place: Path, name: str, data: Path, *options: object) -> tuple[int, str, str]:
    """One run of the verb: exit code, standard output and standard error."""
    words = ["--data", data, "--out", place / "results", "--work", place / "work", "--device", "cpu"]
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in ("lab", "benchmark", name, *words, *options)])
    return stop.value.code, *capsys.readouterr()


def test_the_verb_goes_from_published_files_to_a_table_of_every_method(tmp_path, capsys):
    code, told, err = benchmark(
        capsys, tmp_path, "numosim", numosim(tmp_path / "la"), "--methods", "visit-rate,distance"
    )
    assert code == 0, err
    table = (tmp_path / "results" / "table.md").read_text()
    assert told.strip() == table.strip()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")]
    assert [rows.count(name) for name in ("visit rate", "distance to own places")] == [2, 2]  # once more three ways
    assert table.startswith(f"# {BENCHMARKS['numosim'].title}\n")
    assert "## Detection, numosim" in table
    lines = (tmp_path / "results" / "detection.jsonl").read_text()
    assert str(tmp_path) not in lines  # no line says where the files were


def test_the_table_says_what_it_takes_to_cite_it(tmp_path, capsys):
    options = ("--methods", "visit-rate", "--seeds", 2)
    assert benchmark(capsys, tmp_path, "numosim", numosim(tmp_path / "la"), *options)[0] == 0
    facts = (tmp_path / "results" / "table.md").read_text().splitlines()[2]
    scored, odd = AGENTS * (DAYS - TEST) * 2, len([i for i in range(AGENTS * (DAYS - TEST) * 2) if i % 7 == 0])
    assert f"Data: {AGENTS} people, {AGENTS * DAYS * 2} stays." in facts
    assert f"Scored: {AGENTS} people, 1 of them anomalous." in facts
    assert f"Scored: {scored} stays, " in facts
    assert 0 < int(facts.split(f"Scored: {scored} stays, ")[1].split()[0]) <= odd
    assert "Seeds: 7, 8." in facts
    assert f"ustad {__version__}," in facts


def test_a_table_of_several_seeds_says_that_its_spread_is_over_trainings_alone(tmp_path, capsys):
    place = numosim(tmp_path / "la")
    for seeds in (1, 2):
        out = tmp_path / str(seeds)
        assert benchmark(capsys, out, "numosim", place, "--methods", "random", "--seeds", seeds)[0] == 0
        tables = (out / "results" / "table.md").read_text().split("\n## ")[1:]
        spread = "are over trainings on one data set: they say nothing of other people."
        assert {table.count(spread) for table in tables} == {int(seeds > 1)}


def made_up_injections(models, kind, method="ustad-plain"):
    """What a cell of injections says, without a network: AUROC .9 of our preset and .7 of the paper's scores."""
    names, auroc = (("score",), 0.9) if method == "ustad-default" else (("loss", "eu", "knn", "loss_knn"), 0.7)
    scores = {"scores": {how: {"auroc": auroc, "ap": 0.1} for how in names}}
    return {"n": 1200, "positives": 30, **scores, "incidents": scores, "changed": {"positives": 20, **scores}}


def test_the_table_of_geolife_has_our_preset_beside_the_papers_scores(tmp_path, capsys, monkeypatch):
    made_up = replace(experiments.EXPERIMENTS["injections"], run=made_up_injections)
    monkeypatch.setitem(experiments.EXPERIMENTS, "injections", made_up)
    data = geolife(tmp_path / "Data")
    code, told, err = benchmark(capsys, tmp_path, "geolife", data)
    assert code == 0, err
    assert "Data: 2 people, " in told
    counts, best = (part.splitlines() for part in told.split("\n## ") if "Stays scored" in part or "`best`" in part)
    assert "| swap | 1,200 | 30 | 20 |" in counts
    rows = [line.split(" | ") for line in best if line.startswith("| swap")]
    assert rows[0][1:5] == ["0.700", "0.100", "0.900", "0.100"]
    assert "±" not in told
    code, told, _ = benchmark(capsys, tmp_path / "two", "geolife", data, "--seeds", 2)
    assert code == 0
    assert "over trainings on one data set, each with other injected stays" in told
    code, told, _ = benchmark(capsys, tmp_path / "one", "geolife", data, "--methods", "ustad-default")
    assert code == 0
    assert "0.900" in told
    assert "0.700" not in told


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("geolife", ("--methods", "visit-rate"), ("visit-rate", "ustad-plain, ustad-default")),
        ("numosim", ("--methods", "visit-rate,mlp"), ("'mlp'", "leave the option out")),
        ("geolife", ("--agents", 5), ("--agents 5", "leave the option out", "numosim")),
        ("urban-anomalies", ("--agents", 5), ("--agents 5", "leave the option out", "numosim")),
    ],
)
def test_a_setting_that_a_benchmark_does_not_use_is_refused_before_anything_is_read(
    tmp_path, capsys, name, options, words
):
    code, _, err = benchmark(capsys, tmp_path, name, tmp_path / "nowhere", *options)
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in words)
    assert "nowhere" not in err
