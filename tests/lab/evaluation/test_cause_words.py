"""What the page says of settings, trainings and λ follows from the result lines."""

from ustad.lab.evaluation.cause_words import (
    cause_paragraphs,
    say_kinds,
    say_lambda,
    say_neighbours,
    say_places,
    say_settings,
    say_turns,
    say_variances,
)
from ustad.lab.evaluation.experiments import EXPERIMENTS

MANY = "town (20,000 agents)"


def line(method="ustad-plain", data="town (9 agents)", seed=1, budget=(), curve=(3.0, 1.0, 2.5), **options):
    training = {
        "epochs": len(curve), "best_epoch": curve.index(min(curve)), "curve": list(curve), "converged": True,
        "stopped": "patience", "left_out": 0.01, "fields": {"x": min(curve)},
    }  # fmt: skip
    budget = {"name": "paper", "injected_share": 0.01, **dict(budget)}
    return {
        "experiment": "detection", "method": method, "window": "day", "data": data, "seed": seed, "budget": budget,
        "source": {"agents": 20_000 if data == MANY else 9}, "training": {**training, **options}, "result": {},
    }  # fmt: skip


def results(*lines, **others):
    return {**{name: [] for name in EXPERIMENTS}, "detection": list(lines), **others}


def test_settings_that_differ_from_the_preset_are_those_of_the_budget_and_of_what_was_chosen():
    trips = "`model.trips` none (embedding)"
    assert say_settings(results(line())).endswith(f": on town (9 agents) {trips}.")
    large = line(data=MANY, budget={"batch_size": 512, "choices": {"learning_rate": 0.004}})
    rates = "`training.batch_size` 512 (128), `training.learning_rate` 0.004 (0.001)"
    assert say_settings(results(line(), large)).endswith(f": on town (9 agents) {trips}; on {MANY} {trips}, {rates}.")
    assert say_settings(results({**line(), "acceleration": "off"})).endswith("`training.acceleration` off (auto).")


def test_settings_that_a_search_chose_count_and_those_of_other_methods_do_not():
    searched = {**line(), "settings": {"width": 32}}
    assert "`model.width` 32 (64)" in say_settings(results(searched))
    assert say_settings(results(line("ctle"))) == ""


def test_where_ustad_stopped_by_the_older_rule_is_said():
    older = line()
    del older["training"]["left_out"]
    words = "Cells marked † (on town (9 agents)) stopped by an older rule than the preset's."
    assert words in say_settings(results(older, line(data=MANY)))
    assert "†" not in say_settings(results(line()))


def test_epochs_of_the_lowest_loss_name_every_run_with_its_learning_rate_and_seed():
    tried = [
        line(data=MANY, seed=101, budget={"learning_rate": 2e-3, "changes": {"learning_rate": rate}}, **cut)
        for rate, cut in ((1e-3, {}), (5e-4, {"converged": False, "stopped": "time"}))
    ]
    others = [line("transformer", MANY, curve=(3.0, 2.0)), line("ibat", MANY), line()]
    words = say_turns(results(*others, tried=tried))
    assert (
        f"On {MANY} with σ, USTAD, rate 0.001: 2 of 3 (+1.5, seed 101); USTAD, rate 0.0005: 2 of 3 (+1.5, seed 101, "
        "cut by the clock). Without σ, Transformer: 2 of 2 (+0, seed 1)."
    ) in words
    assert say_turns(results(line(), line("transformer"))) == ""


def test_the_choice_of_lambda_is_told_by_the_data_that_agree_with_it():
    def trials(data, **losses):
        return [
            line(data=data, seed=101, budget={"changes": {"category_weight": float(name[1:])}}, fields={"x": loss})
            for name, loss in losses.items()
        ]

    one, other = trials("one", w1=0.5, w5=0.7), trials("other", w1=0.9, w5=0.7)
    assert say_lambda(results(tried=one)).endswith("So λ = 5 is its choice on none of them.")
    both = say_lambda(results(tried=[*one, *other]))
    assert "λ = 1 on one (0.50 with 1, 0.70 with 5); λ = 5 on other (0.90 with 1, 0.70 with 5)" in both
    assert both.endswith("So λ = 5 is its choice on other alone.")
    assert say_lambda(results(tried=one[:1])) == ""


def test_the_share_of_shortened_neighbours_is_counted():
    counted = {**line(), "result": {"events": {"positives": 10}, "meant": {"positives": 4}}}
    assert "60 % on town (9 agents)" in say_neighbours(results(counted))
    other = {**line(seed=2), "result": {"events": {"positives": 30}, "meant": {"positives": 24}}}
    assert "30 % on town (9 agents)" in say_neighbours(results(counted, counted, other))
    assert say_neighbours(results(line())) == ""


def test_kinds_of_place_are_told_by_the_data_on_which_they_are_predicted_worse():
    def predicted(method, data, accuracy, seeds=(1, 2)):
        rows = [{"term": "poi", "rejected": 0.0, "accuracy": accuracy}]
        return [{**line(method, data, seed), "experiment": "prediction", "result": {"rows": rows}} for seed in seeds]

    worse = [*predicted("ustad-plain", "one", 60.0), *predicted("transformer", "one", 70.0)]
    better = [*predicted("ustad-plain", "other", 71.0), *predicted("transformer", "other", 70.0)]
    single = [*predicted("ustad-plain", "alone", 60.0, [1]), *predicted("transformer", "alone", 70.0, [1])]
    words = say_kinds(results(prediction=[*worse, *better, *single]))
    assert words.startswith("Kinds of place are predicted worse than by the Transformer on one. ")
    assert "λ" not in words
    assert say_kinds(results(prediction=[*better, *single])) == ""
    for accuracy, outcome in (
        (65.0, "With λ = 5 they are on one too."),
        (72.0, "With λ = 5 they no longer are, on one."),
    ):
        with_lambda = say_kinds(results(prediction=[*worse, *predicted("ustad-lambda", "one", accuracy)]))
        assert with_lambda.endswith(outcome)


def test_error_and_loss_of_one_model_are_compared_for_each_data_set():
    def scored(data, seed=1, **areas):
        result = {how: {"events": {"auroc": area, "ap": area and area / 10}} for how, area in areas.items()}
        return {**line(data=data, seed=seed), "experiment": "scores", "result": result}

    lines = [scored("one", pe=0.8, loss=0.7), *(scored("other", seed, pe=0.4 + seed / 10, loss=0.9) for seed in (1, 3))]
    words = say_variances(results(scores=lines))
    assert words.endswith("one 0.800 / 0.080 and 0.700 / 0.070 (one data set); other 0.600 / 0.060 and 0.900 / 0.090.")
    assert say_variances(results(scores=[scored("one", pe=0.8, loss=None)])) == ""


def test_own_places_are_compared_with_ustad_on_the_same_people():
    def found(method, data, ap, seed=1):
        return {**line(method, data, seed), "result": {"events": {"ap": ap, "auroc": 0.5}}}

    ahead = [found("distance", "one", 0.3), found("distance", "one", 0.0, seed=2), found("ustad-plain", "one", 0.1)]
    behind = [found("distance", "other", 0.1), found("ustad-plain", "other", 0.2)]
    words = say_places(results(*ahead, *behind))
    assert "one 0.500 / 0.300 against 0.500 / 0.100 (one data set)" in words
    assert "other 0.500 / 0.100 against 0.500 / 0.200 (one data set)." in words
    assert say_places(results(*behind)) == ""


def test_without_lines_nothing_is_said():
    assert cause_paragraphs(results()) == []
