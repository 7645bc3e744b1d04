"""What the results page says of the conditions its figures were made under."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ustad import __version__
from ustad.lab.evaluation.cells import _classes, _errors
from ustad.lab.evaluation.claim_verdicts import TOO_FEW
from ustad.lab.evaluation.claims import judge_claims, question_of, whole_texts
from ustad.lab.evaluation.experiments import EXPERIMENTS, read_results
from ustad.lab.evaluation.first_screen import first_screen
from ustad.lab.evaluation.page import (
    _fewer_seeds,
    _say_recordings,
    _standard_error,
    _unknown_kinds,
    _versions,
)
from ustad.lab.evaluation.page_words import WITH_NEIGHBOURS, introduce
from ustad.lab.evaluation.plain_tables import Table
from ustad.lab.evaluation.standing import say_trips
from ustad.lab.evaluation.trip_tables import trip_tables


def line(method, seed, **result):
    return {"experiment": "detection", "data": "town", "method": method, "seed": seed, "result": result}


def test_cells_that_lack_a_seed_are_named():
    lines = [line(method, seed) for method in ("ctle", "ibat") for seed in (7, 8)][:-1]
    assert _fewer_seeds(lines) == ["- town, detection ibat: seeds 7 only"]
    assert _fewer_seeds([*lines, line("ctle", 9), line("lstm", 8), line("mlp", 8)]) == [
        "- town, detection ibat: seeds 7 only",
        "- town, detection lstm; detection mlp: seeds 8 only",
    ]


def test_every_set_of_libraries_is_named_with_its_cells():
    lines = [{"versions": {"ustad": __version__, "torch": torch}} for torch in ("2.11", "2.11", "2.13")]
    assert _versions(lines)[:2] == ["- libraries of 2 cells: torch 2.11", "- libraries of 1 cells: torch 2.13"]
    assert _versions(lines[:2])[0] == "- libraries: torch 2.11"


def test_nothing_is_said_where_all_cells_have_all_seeds():
    assert _fewer_seeds([line(method, seed) for method in ("ctle", "ibat") for seed in (7, 8)]) == []


def test_the_standard_error_agrees_with_that_of_drawn_scores():
    """An AUROC of 0.75 from exponential scores, the case that Hanley and McNeil's formula describes exactly."""
    random = np.random.default_rng(5)
    positives, others = random.exponential(3.0, (4000, 16)), random.exponential(1.0, (4000, 400))
    areas = (positives[:, :, None] > others[:, None, :]).mean(axis=(1, 2))
    assert areas.mean() == pytest.approx(0.75, abs=0.005)
    assert float(_standard_error(16, 416)) == pytest.approx(areas.std(), rel=0.05)


def asked():
    """What a model measured of four events: two kinds of place that are known, two that are not."""
    columns = {
        **{f"error_{name}": np.zeros(4) for name in ("x", "y", "start", "duration")},
        "expected_poi": np.array(["shop", "shop", "shop", "shop"], object),
        "observed_poi": np.array(["shop", "park", "unknown", None], object),
    }
    return SimpleNamespace(columns=columns, parts=SimpleNamespace(names=("poi",), eu=np.ones((4, 1))))


def test_a_place_of_unknown_kind_is_neither_right_nor_wrong():
    assert _errors(asked())["poi"].tolist() == pytest.approx([0.0, 1.0, np.nan, np.nan], nan_ok=True)
    assert [(row["class"], row["n"], row["accuracy"]) for row in _classes(asked())] == [
        ("park", 1, 0.0),
        ("shop", 1, 1.0),
    ]


def test_lines_that_counted_unknown_kinds_as_wrong_are_named():
    told = _unknown_kinds(
        [line("ustad-plain", 7, classes=[{"class": "unknown", "n": 1200}, {"class": "shop", "n": 9}])]
    )
    assert told == ["- town: in the curves of rejection 1,200 events at places of unknown kind count as wrong"]


def test_the_first_screen_counts_what_holds_and_names_what_does_not():
    results = read_results(Path(__file__).parents[3] / "results" / "paper")
    _, table, _, names = first_screen(results)
    every_claim = judge_claims(results)
    claims = [claim for claim in every_claim if claim.effects and not claim.text.endswith("(ours)")]
    for row in table.splitlines()[2:6]:
        question, _, confirmed = (cell.strip() for cell in row.strip("|").split("|"))
        own = [c.verdict for c in claims if question_of(c.text) == question[:2]]
        few = f" ({own.count(TOO_FEW)} of {TOO_FEW})" if TOO_FEW in own else ""
        assert confirmed == f"{own.count('confirmed')} of {len(own)}{few}"
    whole = zip(every_claim, whole_texts([c.text for c in every_claim]), strict=True)
    others = [words for claim, words in whole if claim in claims and claim.verdict != "confirmed"]
    assert [words for words in others if words not in names] == []
    assert sum(len(line.split("; ")) for line in names.splitlines() if line.startswith("- **")) == len(others)
    assert "(ours)" not in names
    assert [c.text for c in claims if c.exceptions and c.exceptions in names] == []  # they are told with the claim


def test_a_part_of_a_claim_is_told_under_its_own_claim_where_that_was_not_measured():
    """USTAD-EU beside USTAD-none without USTAD-AU: the claim before the part has no effect."""
    lines = [
        line(method, seed, kept=[1.0], curves={"poi": [0.1]})
        for method in ("ustad-eu", "ustad-none") for seed in range(5)
    ]  # fmt: skip
    names = first_screen({**{name: [] for name in EXPERIMENTS}, "uncertainty": lines})[-1]
    assert "- **not confirmed**: EU helps categories most: over no uncertainty at all" in names


def test_what_the_paper_does_not_say_is_not_counted_with_its_claims():
    """Nov-Online beside USTAD, of which the paper prints no figure, and nothing else."""
    areas = {"auroc": 0.6, "ap": 0.1}
    lines = [
        {**line(method, seed, events=areas, agents=areas), "window": "day"}
        for method in ("ustad-plain", "nov-online") for seed in (1, 2, 3)
    ]  # fmt: skip
    results = {**{name: [] for name in EXPERIMENTS}, "detection": lines}
    assert [claim.text for claim in judge_claims(results) if claim.effects] == [
        "– Nov-Online, for which the paper prints no figure (ours)"
    ]
    row = next(row for row in first_screen(results)[1].splitlines() if row.startswith("| Q2"))
    assert row.endswith("| – |")


def test_the_first_screen_says_what_trips_add_of_the_same_people():
    def score(method, seed, area, **training):
        areas = {"auroc": area, "ap": 0.1}
        return {**line(method, seed, events=areas, agents=areas), "window": "day", **training}

    def answer(seeds, deep):
        """With trips on the given seeds; the deep baseline is far better on a seed that trips were not run on."""
        lines = [score("ustad-plain", seed, 0.5 + seed / 10) for seed in range(7)]
        lines += [score("transformer", seed, deep if seed in seeds else 0.99) for seed in range(7)]
        with_trips = [score("ustad-trips", seed, 0.7) for seed in seeds]
        results = {**{name: [] for name in EXPERIMENTS}, "detection": lines, "detection with trips": with_trips}
        return next(row for row in first_screen(results)[1].splitlines() if row.startswith("| Q2"))

    told = "With trips, as the preset `paper` has them, it has AUROC of events 0.700"
    assert f"{told} (without 0.550); agents 0.700 (without 0.550)." in answer((0, 1), 0.6)
    ahead = answer((0, 1, 2, 3, 4), 0.6)
    assert f"{told}, ahead of Transformer (without 0.700); agents 0.700, ahead of Transformer (without 0.700)." in ahead


def test_figures_with_trips_are_marked_by_their_own_trainings_alone():
    def score(method, seed, training):
        areas = {"auroc": 0.7, "ap": 0.1}
        return {**line(method, seed, events=areas, agents=areas), "window": "day", "training": training}

    older, newer = {"curve": []}, {"left_out": 0.01}
    for training, is_marked in ((older, True), (newer, False)):
        lines = [score("ustad-plain", 1, newer), score("ustad-au", 1, older)]
        results = {**{name: [] for name in EXPERIMENTS}, "detection": lines}
        results["detection with trips"] = [score("ustad-trips", 1, training)]
        (words,) = say_trips(results, lines[0]["data"])
        assert ("†" in words) == is_marked


def test_what_some_lines_alone_have_is_explained_only_where_they_are_there():
    day, past = ({**line("ustad-plain", 1), "window": window} for window in ("day", "past"))
    assert "past only" not in introduce("detection", [day])
    assert "`past only`" in introduce("detection", [day, past])
    older, newer = line("ustad-plain", 1, boxes={}), line("ustad-plain", 1, boxes={}, boxes_without="neighbours")
    assert WITH_NEIGHBOURS in introduce("injections", [newer, older])
    assert WITH_NEIGHBOURS not in introduce("injections", [newer])


def test_more_weeks_of_training_are_said_to_be_more_steps_too():
    def trained(weeks, seed, steps):
        terms = {"x": {"au": 1.0, "eu": 1.0 / weeks}}
        own = {**line("", seed, terms=terms), "weeks": weeks, "training": {"steps": steps}}
        return {key: value for key, value in own.items() if key != "method"}

    lines = [trained(1, seed, 400) for seed in (1, 2, 3)] + [trained(3, seed, 1000) for seed in (1, 2)]
    for told in lines[:3]:
        told["steps"] = "equal"
    results = {**{name: [] for name in EXPERIMENTS}, "uncertainty": lines}
    row = next(row for row in first_screen(results)[1].splitlines() if row.startswith("| Q3"))
    assert "EU is 33 % of what it was (x 33 %)" in row
    assert "means of 2 data sets, with 2.5 times the steps." in row


def test_trips_that_older_code_scored_are_said_to_be_scored():
    def score(method, **versions):
        areas = {"auroc": 0.7, "ap": 0.1}
        return {**line(method, 1, events=areas, agents=areas), "window": "day", "versions": versions}

    for versions, words in (({"ustad": "0.3.0"}, "scored too (older code)"), ({"code": "a"}, "as the preset")):
        results = {**{name: [] for name in EXPERIMENTS}, "detection": [score("ustad-plain", code="a")]}
        results["detection with trips"] = [score("ustad-trips", **versions)]
        (told,) = say_trips(results, "town")
        assert f"With trips, {words}" in told
        (table,) = trip_tables(results, "detection")
        assert ("which scored both vectors" in table.note) == ("code" not in versions)


def test_true_findings_from_recordings_say_of_how_many_towns_they_are():
    heads = ("method", "from", "seeds", "agents AUROC", "true of the 14 most unusual")
    rows = [("preset `quick`", name, "10", "0.9", cell) for name, cell in (("true stays", "7.8 ± 2.5"), ("phone", "5"))]
    table = Table("gps-town", "", heads, (*rows, ("preset `best`", "phone", "5", "0.9", "6.0 ± 1.0")))
    _, quick, best = _say_recordings(table)
    assert (quick, best) == (
        "Preset `quick`, 10 towns: 7.8 from true stays, 5 from phone.", "Preset `best`, 5 towns: 6.0 from phone."
    )  # fmt: skip
    assert list(_say_recordings(Table("gps", "", heads[:4], ()))) == []
