"""The page says which budget and which settings each method was given, and what was not run."""

import pytest

from ustad.lab.evaluation.experiments import PAPER, find_methods
from ustad.lab.evaluation.fairness_tables import missing_methods
from ustad.lab.evaluation.given_settings import refuse_two_budgets, say_budgets, say_given
from ustad.lab.evaluation.page import INCOMPLETE, every_table, page_text
from ustad.lab.evaluation.result_tables import NAMES
from ustad.tables import DataError

EMPTY = {f"{name}{part}": [] for name in PAPER for part in ("", " with trips", " of best")} | {"gps": []}
EMPTY |= {"tried": [], "search": []}


def line(method, seed=1, budget="large", data="town", choices=None, changes=None, loss=1.0):
    own = {key: value for key, value in (("choices", choices), ("changes", changes)) if value}
    areas = {"auroc": 0.8, "ap": 0.1, "positives": 5, "n": 90}
    training = {
        "epochs": 9, "steps": 90, "best_loss": loss, "seconds": 3.0, "stopped": "patience", "converged": True,
        "left_out": 0.01,
    }  # fmt: skip
    return {
        "experiment": "detection", "data": data, "source": {"name": data, "events": 9, "agents": 3, "seed": seed},
        "method": method, "window": "day", "seed": seed, "budget": {"name": budget, **own}, "training": training,
        "result": {"events": areas, "agents": areas}, "seconds": 1.0, "fit_seconds": 1.0, "device": "cpu",
        "hardware": {"cpu": "x"}, "versions": {"ustad": "1"}, "date": "2026-01-01",
    }  # fmt: skip


def trials(method, data="town (5,000 agents)", **losses):
    """A trial for each width; `as_is` has none."""
    widths = {name: {} if name == "as_is" else {"width": int(name.removeprefix("w"))} for name in losses}
    return [line(method, 101, data=data, changes=widths[name], loss=loss) for name, loss in losses.items()]


# ------------------------------------------------------------------------------------------------ budgets
def test_two_budgets_of_one_method_on_the_same_data_are_not_published_together():
    lines = [line("ctle", seed, name) for seed, name in ((7, "large"), (8, "huge"))]
    with pytest.raises(DataError, match="detection of ctle on town was run with the budgets huge and large"):
        refuse_two_budgets({"detection": lines})
    refuse_two_budgets({"detection": lines[:1], "scores": lines[1:]})
    refuse_two_budgets({"detection": [lines[0], line("ctle", 8, "huge", data="bay")]})
    refuse_two_budgets({"tried": lines, "search": lines})


def test_two_choices_of_settings_for_one_method_are_two_budgets():
    lines = [line("ctle", 7), line("ctle", 8, choices={"width": 128})]
    with pytest.raises(DataError, match=r"large and large \(width 128\)"):
        refuse_two_budgets({"detection by training": lines})


def test_methods_of_two_budgets_stand_together_and_the_page_says_which_had_which():
    lines = [line("ctle"), line("transformer", budget="huge"), line("ustad-plain", budget="huge")]
    results = {**EMPTY, "detection": [*lines, {**line("ibat", budget="huge"), "training": {}}]}
    refuse_two_budgets(results)
    words = "Budgets on town: `large` CTLE; `huge` Transformer · USTAD."
    assert say_budgets(results["detection"]) == words
    table = next(t for t in every_table(results)["detection"] if t.name == "detection-town")
    assert words in table.note
    screen = page_text(results, "here", "figures").split("## Q2")[0]
    assert words in screen
    assert say_budgets(lines[1:]) == ""


# ----------------------------------------------------------------------------------------------- settings
def test_the_table_says_which_settings_were_chosen_and_among_which_trials():
    tried = [*trials("ctle", as_is=2.0, w64=1.0, w128=3.0), *trials("transformer", as_is=1.0, w64=2.0)]
    lines = [line("ctle", choices={"width": 64}), line("transformer"), line("atrom"), line("gm-vsae")]
    results = {**EMPTY, "detection": lines, "tried": tried}
    note = next(t for t in every_table(results)["detection"] if t.name == "detection-town").note
    for words in (
        "Settings on town were chosen on development people, by the lowest validation loss; no label was read.",
        "CTLE: width 64 (best of 3 trials on town (5,000 agents), seed 101)",
        "Transformer: as it is (best of 2 trials on town (5,000 agents), seed 101)",
        "ATROM · GM-VSAE: as it is (not chosen by a trial)",
    ):
        assert words in note


def test_a_choice_that_the_trials_do_not_give_is_not_put_down_to_them():
    lines, tried = [line("ctle", choices={"width": 128})], trials("ctle", as_is=2.0, w64=1.0)
    assert "CTLE: width 128 (no trials among the result files give it)" in say_given(lines, tried)
    assert "best of" not in say_given(lines, tried)


def test_of_several_sets_of_trials_the_one_that_gives_the_choice_is_named():
    tried = [*trials("ctle", as_is=1.0, w64=2.0), *trials("ctle", "town (9 agents)", as_is=2.0, w64=1.0)]
    assert "best of 2 trials on town (9 agents)" in say_given([line("ctle", choices={"width": 64})], tried)


def test_trials_without_a_method_are_of_ustad():
    """Those of the experiment `scores`, which is about USTAD alone."""
    tried = trials("ustad-plain", as_is=2.0, w64=1.0)
    for trial in tried:
        del trial["method"]
    lines = [line("ustad-plain", choices={"width": 64}), line("ustad-au", choices={"width": 64})]
    words = say_given(lines, tried)
    assert "USTAD · USTAD-AU: width 64 (best of 2 trials" in words  # the variant takes the settings of USTAD


def test_nothing_is_said_where_every_method_has_the_budget_alone():
    assert say_given([line("ctle"), line("transformer")], trials("ctle", as_is=1.0)) == ""


# ------------------------------------------------------------------------------------------------ missing
def test_methods_that_were_not_run_are_named_for_every_data_set():
    all_methods = [line(method) for method in find_methods("detection")]
    few = [line(method, data=data) for data in ("bay", "city") for method in ("ctle", "ustad-plain")]
    results = {**EMPTY, "detection": [*all_methods, *few], "prediction": [line("mlp")]}
    prediction, rest, detection = missing_methods(results)
    names = detection.removeprefix("detection on bay, city: ").split(" · ")
    assert set(names) == {NAMES[m] for m in find_methods("detection")} - {NAMES["ctle"], NAMES["ustad-plain"]}
    assert prediction.startswith("prediction on town: LSTM · ")
    assert rest == "prediction on bay, city: all of it"


def test_the_first_screen_points_at_what_is_missing_only_where_something_is():
    lines = [line(method) for method in find_methods("detection")]
    pages = [page_text({**EMPTY, "detection": own}, "here", "figures") for own in (lines, lines[:-1])]
    screens = [page.split("## Q2")[0] for page in pages]
    assert [INCOMPLETE in screen for screen in screens] == [False, True]
    assert ["Not run:" in page for page in pages] == [False, True]


def test_methods_told_of_trips_and_cells_of_fewer_weeks_are_found_where_they_stand():
    trips = {**EMPTY, "detection": [line("ctle")], "detection with trips": [line("ctle-trips")]}
    (words,) = missing_methods(trips)
    assert NAMES["ctle-trips"] not in words
    assert NAMES["sensitive-hue-trips"] in words
    weeks = [{"data": "town", "weeks": 1, "budget": {}}, *({"data": "town", "method": m} for m in ("ustad-plain",))]
    (words,) = missing_methods({**EMPTY, "uncertainty": weeks})
    assert NAMES["ustad-weeks-between"] in words
    assert NAMES["ustad-weeks"] not in words.split(": ")[1].split(" · ")
