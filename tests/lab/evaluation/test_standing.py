"""Tables and sentences about where USTAD stands follow from the figures."""

import pytest

from ustad.lab.evaluation.claim_effects import ahead_of_deep
from ustad.lab.evaluation.experiments import EXPERIMENTS
from ustad.lab.evaluation.standing import causes, compare_predictions, goal_tables, lead, standing


def detection(method, aurocs, data="town (30 agents)"):
    return [
        {
            "data": data,
            "method": method,
            "window": "day",
            "seed": seed,
            "result": {"agents": {"auroc": value, "ap": 0.1}},
        }
        for seed, value in enumerate(aurocs)
    ]


def results(**lines):
    return {**{name: [] for name in EXPERIMENTS}, **lines}


def only_row(lines):
    (table,) = standing(results(detection=lines))
    (row,) = table.rows
    return dict(zip(table.heads, row, strict=True))


@pytest.mark.parametrize(
    ("ours", "word"), [((0.80, 0.82), "ahead of"), ((0.60, 0.62), "behind"), ((0.69, 0.73), "level with")]
)
def test_ahead_and_behind_need_more_than_the_spread(ours, word):
    figures = {
        "ustad-plain": (*ours, *ours, sum(ours) / 2),
        "ctle": (0.5,) * 5,
        "transformer": (0.70, 0.72) * 2 + (0.71,),
    }
    row = only_row([line for method, values in figures.items() for line in detection(method, values)])
    assert row["against the best deep baseline by AUROC"].startswith(f"**{word}** Transformer, 0.710; spread 0.0")
    assert row["against the best deep baseline by AUPR"].startswith("**level with** ")
    assert row["USTAD"] == f"{sum(ours) / 2:.3f} / 0.100"
    assert row["data sets"] == "5"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (4, "Transformer, the only one there, 0.700; 4 data sets, no verdict"),
        (5, "**ahead of** Transformer, the only one there, 0.700; spread 0.000; "),
    ],
)
def test_fewer_than_five_data_sets_give_no_verdict(count, words):
    lines = [*detection("ustad-plain", [0.9] * 5), *detection("transformer", [0.7] * count)]
    assert only_row(lines)["against the best deep baseline by AUROC"].startswith(words)


def test_visit_rate_and_the_preset_with_history_stand_beside():
    methods = {"ustad-plain": 0.8, "transformer": 0.7, "visit-rate": 0.85, "ustad-default": 0.95}
    row = only_row([x for m, v in methods.items() for x in detection(m, (v, v))])
    assert (row["visit rate"], row["our `quick`"], row["our `best`"]) == ("0.850 / 0.100", "–", "0.950 / 0.100")


def test_the_lead_is_the_difference_of_means_beside_the_larger_spread():
    lines = [*detection("ustad-plain", (0.8, 0.9)), *detection("transformer", (0.70, 0.72))]
    margin, spread = lead(lines, "town (30 agents)", "agents")
    assert margin == pytest.approx(0.14)
    assert spread == pytest.approx(0.0707, abs=1e-4)


def test_one_baseline_is_not_called_the_best_of_several():
    lines = [*detection("ustad-plain", (0.8,)), *detection("transformer", (0.7,))]
    told = only_row(lines)["against the best deep baseline by AUROC"]
    assert told == "Transformer, the only one there, 0.700; one data set, no verdict"


def prediction(method, mae, accuracy, seed=1):
    rows = [{"term": "x", "rejected": 0.0, "mae": mae}, {"term": "poi", "rejected": 0.0, "accuracy": accuracy}]
    return {"data": "town (30 agents)", "method": method, "seed": seed, "result": {"rows": rows}}


def test_causes_name_what_is_predicted_better_and_worse():
    lines = [
        prediction(method, mae, right, seed)
        for method, mae, right in (("ustad-plain", 2.0, 50.0), ("transformer", 3.0, 60.0)) for seed in (1, 2)
    ]  # fmt: skip
    (sentence,) = causes(results(prediction=lines, detection=detection("ustad-plain", (0.8,))))
    assert "x (2 against 3 km) better; kind of place (50 against 60 % right) worse" in sentence


def test_one_data_set_gives_no_verdict_on_predictions():
    lines = [prediction("ustad-plain", 2.0, 50.0), prediction("transformer", 3.0, 60.0)]
    (sentence,) = causes(results(prediction=lines, detection=detection("ustad-plain", (0.8,))))
    assert sentence.endswith(
        "predicts x (2 against 3 km), kind of place (50 against 60 % right) (one data set, no verdict)."
    )


def test_a_difference_within_the_spread_is_neither_better_nor_worse():
    lines = [
        *(prediction("ustad-plain", mae, 50.0, seed) for seed, mae in enumerate((2.0, 4.0))),
        *(prediction("transformer", 3.1, 60.0, seed) for seed in range(2)),
    ]
    (sentence,) = causes(results(prediction=lines, detection=detection("ustad-plain", (0.8,))))
    assert "x (3 against 3.1 km) equally well; kind of place (50 against 60 % right) worse" in sentence


def test_a_goal_is_met_by_more_than_the_spread_and_kinds_within_two_points():
    lines = [*detection("transformer", (0.70, 0.72) * 3), *detection("ustad-plain", (0.73, 0.75) * 3)]
    lines += detection("ustad-lambda", (0.71, 0.73) * 3)
    few = goal_tables(results(detection=[line for line in lines if line["seed"] < 4]))
    assert few == []  # of four data sets nothing is said
    predicted = [prediction("dual-tr", 2.0, 70.0), prediction("ustad-plain", 2.0, 67.9)]
    predicted.append(prediction("ustad-lambda", 2.1, 68.1))
    (table,) = goal_tables(results(detection=lines, prediction=predicted))
    assert [(row[0], row[3]) for row in table.rows] == [
        ("USTAD", "met"), ("USTAD", "met"), ("USTAD", "missed"),
        ("USTAD, λ = 5", "missed"), ("USTAD, λ = 5", "missed"), ("USTAD, λ = 5", "met"),
    ]  # fmt: skip


def test_predictions_are_compared_on_the_same_people():
    """Dual-Tr was run on a second data set too, which is harder: its error there says nothing about USTAD."""
    lines = [prediction(m, mae, 70.0, seed) for m, mae in (("ustad-plain", 2.1), ("dual-tr", 2.0)) for seed in (1, 2)]
    lines.append(prediction("dual-tr", 9.0, 10.0, seed=3))
    (table,) = goal_tables(results(prediction=lines))
    assert [row[2:] for row in table.rows] == [
        ("2.1 against 2 km", "missed"), ("70 against 70 % right", "met"),
    ]  # fmt: skip
    assert list(compare_predictions(lines, "town (30 agents)", "dual-tr").values())[1] == [
        "kind of place (70 against 70 % right)"
    ]


@pytest.mark.parametrize(("n_others", "judged"), [(5, True), (4, False)])
def test_the_lead_is_claimed_of_data_sets_that_both_were_run_on(n_others, judged):
    """The Transformer was run on a sixth data set too, where it is best: nothing follows from that."""
    others = detection("transformer", (0.7,) * n_others)
    others.append({**others[0], "seed": 9, "result": {"agents": {"auroc": 1.0, "ap": 1.0}}})
    lines = [*detection("ustad-plain", (0.8,) * 5), *others]
    assert list(ahead_of_deep("auroc")(results(detection=lines))) == (
        [("agents", pytest.approx(0.1))] if judged else []
    )


def test_methods_run_on_one_data_set_in_common_are_not_judged_by_a_spread():
    lines = [*detection("ustad-lambda", (0.90, 0.91, 0.92)), *detection("transformer", (0.70,))]
    assert goal_tables(results(detection=lines)) == []


def test_a_row_is_of_the_people_that_ustad_was_run_on():
    """`quick` was run on a second data set too, where it is worse: its figure there is no part of the row."""
    lines = [*detection("ustad-plain", (0.8,)), *detection("transformer", (0.7,))]
    lines += detection("ustad-quick", (0.9, 0.1))
    assert only_row(lines)["our `quick`"].startswith("0.900 / ")


def test_what_was_asked_at_full_size_needs_no_spread():
    (table,) = goal_tables(results(detection=detection("ustad-plain", (0.861,), "numosim-la (20,000 agents)")))
    assert [row[1:] for row in table.rows] == [
        ("agents of numosim-la (20,000 agents): AUROC ≥ 0.86", "0.861", "met"),
    ]


def test_the_searched_lambda_stands_beside_the_printed_one():
    lines = [*detection("ustad-plain", (0.8,)), *detection("ustad-lambda", (0.9,))]
    for line in lines:
        line["result"]["events"] = line["result"]["agents"]
    predicted = [prediction("ustad-plain", 1.0, 60.0), prediction("ustad-lambda", 1.0, 66.0)]
    (told,) = causes(results(detection=lines, prediction=predicted))
    assert "66.0 against 60.0 % of kinds of place right, and by AUROC events 0.900 against 0.800" in told
    assert "†" not in told
    detections = [
        {**x, "training": {"left_out": 0.01} if x["method"] == "ustad-lambda" else {"curve": []}} for x in lines
    ]
    (told,) = causes(results(detection=detections, prediction=predicted))
    assert told.endswith(
        "events 0.900 against 0.800, agents 0.900 against 0.800 (the other stopped by the older rule, †)."
    )
