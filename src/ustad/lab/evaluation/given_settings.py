"""Which budget and which settings each method of a table was given, and how the settings were chosen.

In go result lines, out come sentences for under the tables. Two budgets of one method on the same data are refused:
a spread over them would not be over people.
"""

from __future__ import annotations

from typing import Any

from ustad.lab.evaluation.chosen_settings import AS_USTAD, choose_settings, chosen_for
from ustad.lab.evaluation.fitted_models import USTAD, class_name
from ustad.lab.evaluation.result_tables import NAMES, Line, Results, select_lines, sets
from ustad.tables import DataError

#: Of lines that no table takes a spread over.
NO_RESULTS = ("search", "tried")


def refuse_two_budgets(results: Results) -> None:
    """Lines of one experiment, data set and method must have one budget and one choice of settings."""
    for name, lines in results.items():
        budgets: dict[tuple[str, str], set[str]] = {}
        for line in lines if name not in NO_RESULTS else ():
            budgets.setdefault((line["data"], method_of(line)), set()).add(_describe_budget(line["budget"]))
        for (data, method), names in budgets.items():
            if len(names) > 1:
                raise DataError(
                    f"{name} of {method} on {data} was run with the budgets {' and '.join(sorted(names))}; publish "
                    "each from a directory of its own (--out)"
                )


def say_given(lines: list[Line], trials: list[Line]) -> str:
    """Budgets where a data set has several, and settings where some were chosen; empty where there is neither."""
    by_data = [select_lines(lines, data=data) for data in sets(lines)]
    sentences = (sentence for own in by_data for sentence in (say_budgets(own), say_chosen(own, trials)))
    return " ".join(filter(None, sentences))


def say_budgets(lines: list[Line]) -> str:
    """Which network had which budget, where the lines of one data set have several."""
    methods: dict[str, dict[str, None]] = {}
    for line in lines:
        if line.get("training"):
            methods.setdefault(line["budget"]["name"], {})[_name(method_of(line))] = None
    if len(methods) < 2:
        return ""
    words = (f"`{budget}` {' · '.join(names)}" for budget, names in methods.items())
    return f"Budgets on {lines[0]['data']}: {'; '.join(words)}."


def say_chosen(lines: list[Line], trials: list[Line]) -> str:
    """The settings of each network of one data set and the trials they were chosen among."""
    budgets = {method_of(x): x["budget"] for x in lines if x.get("training") or x["budget"].get("choices")}
    if not any(budget.get("choices") for budget in budgets.values()):
        return ""
    names: dict[str, list[str]] = {}
    for method, budget in budgets.items():
        names.setdefault(_describe_choice(method, budget, trials), []).append(_name(method))
    words = (f"{' · '.join(own)}: {choice}" for choice, own in names.items())
    return (
        f"Settings on {lines[0]['data']} were chosen on development people, by the lowest validation loss; no label "
        f"was read. {'; '.join(words)}."
    )


def _describe_choice(method: str, budget: dict[str, Any], trials: list[Line]) -> str:
    """`width 128 (best of 3 trials on numosim-la (5,000 agents), seed 101)`."""
    choice = tuple(sorted(budget.get("choices", {}).items()))
    words = ", ".join(f"{name} {value}" for name, value in choice) or "as it is"
    tried_as = USTAD if class_name(method) in AS_USTAD else class_name(method)
    for data, seed in dict.fromkeys((x["data"], x["seed"]) for x in trials):
        lines = select_lines(trials, data=data, seed=seed)
        own = {
            str(x["budget"].get("changes")) for x in lines if x.get("training") and class_name(method_of(x)) == tried_as
        }
        if own and chosen_for(method, choose_settings(lines)) == choice:
            count = f"best of {len(own)} trials" if len(own) > 1 else "the only trial"
            return f"{words} ({count} on {data}, seed {seed})"
    return f"{words} ({'no trials among the result files give it' if choice else 'not chosen by a trial'})"


def method_of(line: Line) -> str:
    """A line without a method is about USTAD itself."""
    return str(line.get("method", "ustad-plain"))


def _name(method: str) -> str:
    return NAMES.get(method, method)


def _describe_budget(budget: dict[str, Any]) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in budget.get("choices", {}).items())
    return f"{budget['name']} ({settings})" if settings else str(budget["name"])


__all__ = ["refuse_two_budgets", "say_budgets", "say_chosen", "say_given"]
