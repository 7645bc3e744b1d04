"""What was tried on development seeds has a table of its own and is in no other."""

import json

from ustad import __version__
from ustad.lab.evaluation.experiments import read_results
from ustad.lab.evaluation.page import page_text
from ustad.lab.evaluation.tried_tables import AS_IT_IS, tried_tables

LARGE, SMALL = "numosim-la (5,000 agents)", "numosim-la (2,000 agents)"
ERRORS = [{"term": t, "rejected": 0.0, "mae": 2.0} for t in ("x", "y", "start", "duration")]
WITH_KINDS = [*ERRORS, {"term": "poi", "rejected": 0.0, "accuracy": 70.0}]
REJECTED = [{**row, "rejected": 0.05, **({"mae": 9.0} if "mae" in row else {"accuracy": 9.0})} for row in WITH_KINDS]


def cell(experiment, result, seed=101, agents=5000, method="ustad-plain", trained=True, **changes):
    budget = {"name": "large" + "".join(f"-{k}={v}" for k, v in changes.items()), "batch_size": 512}
    training = {
        "epochs": 40, "steps": 12345, "best_loss": -11.5, "seconds": 200.0, "stopped": "patience", "converged": True,
        "targets": 10, "fields": {"x": -2.0, "poi": 0.75}, "left_out": 0.01,
    }  # fmt: skip
    line = {
        "key": f"{experiment}{seed}{agents}{method}{changes}", "experiment": experiment,
        "data": f"numosim-la ({agents:,} agents)",
        "source": {"name": "numosim-la", "agents": agents, "seed": seed, "events": 10}, "seed": seed,
        "budget": {**budget, **({"changes": changes} if changes else {})}, "result": result, "seconds": 9.0,
        "fit_seconds": 5.0, "device": "cpu", "versions": {"ustad": __version__}, "hardware": {"cpu": "one"},
        **({"training": training} if trained else {}),
    }  # fmt: skip
    options = {"method": method} if experiment != "scores" else {}
    return {**line, **options, **({"window": "day"} if experiment == "detection" else {})}


def detected(events, agents):
    counts = {"n": 100, "positives": 10}
    return {"events": {"auroc": events, "ap": 0.1, **counts}, "agents": {"auroc": agents, "ap": 0.2, **counts}}


def write(place, *lines):
    for one in lines:
        with (place / f"{one['experiment']}.jsonl").open("a") as file:
            file.write(json.dumps(one) + "\n")
    return read_results(place)


def rows_of(lines):
    (table,) = tried_tables(lines)
    return [dict(zip(table.heads, row, strict=True)) for row in table.rows]


def test_a_setting_has_one_row_from_all_experiments_made_with_it(tmp_path):
    results = write(
        tmp_path,
        cell("prediction", {"rows": [*WITH_KINDS, *REJECTED]}, category_weight=5),
        cell("detection", detected(0.8, 0.9), category_weight=5),
        cell("detection", detected(0.7, 0.6)),
        cell("detection", detected(0.5, 0.5), method="visit-rate", trained=False),
        cell("detection", detected(0.75, 0.65), agents=2000),
    )
    rows = rows_of(results["tried"])
    assert [(row["data"], row["method"], row["setting"]) for row in rows] == [
        (SMALL, "USTAD", AS_IT_IS), (LARGE, "USTAD", "category_weight 5"), (LARGE, "visit rate", AS_IT_IS),
        (LARGE, "USTAD", AS_IT_IS),
    ]  # fmt: skip
    both = rows[1]
    assert (both["seed"], both["budget"], both["epochs"], both["steps"]) == ("101", "large", "40", "12,345")
    assert (both["stopped by"], both["left out"]) == ("patience", "1 %")
    assert (both["validation loss"], both["without λ"]) == ("-11.500", "-1.250")
    assert (both["MAE x, km"], both["MAE duration, min"], both["kind of place, % right"]) == ("2.00", "2.00", "70.0")
    assert [both[f"{level} {what}"] for level in ("events", "agents") for what in ("AUROC", "AUPR")] == [
        "0.800", "0.100", "0.900", "0.200",
    ]  # fmt: skip
    assert rows[2]["epochs"] == rows[2]["MAE x, km"] == "–"  # nothing was trained, nothing predicted


def test_what_was_tried_is_folded_on_the_page_and_in_no_other_table_or_count(tmp_path):
    reported = [cell("detection", detected(0.8, 0.9), seed=seed, agents=2000) for seed in (1, 2)]
    alone = page_text(write(tmp_path, *reported), "results", "figures")
    more = [cell("detection", detected(0.1, 0.1)), cell("prediction", {"rows": WITH_KINDS}, width=128)]
    text = page_text(write(tmp_path, *more), "results", "figures")
    before, _, rest = text.partition('<details markdown="1"><summary>What was tried on development seeds</summary>')
    tried, _, after = rest.partition("</details>\n\n")
    assert before + after == alone
    assert "nothing here is a result" in tried
    assert tried.count(LARGE) == 2  # data of which nothing is reported, with and without a change


def test_nothing_tried_has_no_table():
    assert tried_tables([]) == []
