"""Pictures of case studies: the weeks of a person with the event marked, one case a rule.

In go lines of the experiment `cases`, out come figures that are not drawn yet.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from ustad.lab.evaluation.drawing import COLOURS, WIDTH, Figure
from ustad.lab.evaluation.result_tables import Line, select_lines, sets, slug

OTHER = "0.75"  # grey: kinds of place without a colour of their own
#: Not black: the event is framed in it.
KIND_COLOURS = [colour for colour in COLOURS if colour != "#000000"]
#: How kinds are told apart that have the same colour, in all pictures of a data set.
HATCHES = ("", "/////", ".....", "xxxxx", "-----")
Styles = dict[str, tuple[str, str]]


def case_figures(*parts: list[Line]) -> list[Figure]:
    """The first case by each rule, of the lowest seed of each data set and part (the paper's rules, our preset's)."""
    figures = []
    for lines in parts:
        for data in sets(lines):
            order = rank_kinds([case for part in parts for case in _first_cases(part, data).values()])
            for (kind, among), case in _first_cases(lines, data).items():
                seed = _first_line(lines, data)["seed"]
                caption = f"First by the rule {kind} among {among}, {data}, seed {seed}: {case_words(case)}"
                name = f"case-{slug(data)}-{slug(kind)}-{slug(among)}"
                figures.append(Figure(name, caption, partial(draw_case, case=case, order=order)))
    return figures


def _first_line(lines: list[Line], data: str) -> Line:
    return min(select_lines(lines, data=data), key=lambda x: x["seed"])


def _first_cases(lines: list[Line], data: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The first case by each rule and choice, where the data set has any."""
    if not select_lines(lines, data=data):
        return {}
    cases: dict[tuple[str, str], dict[str, Any]] = {}
    for case in _first_line(lines, data)["result"]["cases"]:
        cases.setdefault((case["kind"], case.get("among", "all events")), case)
    return cases


def case_words(case: dict[str, Any]) -> str:
    """Expected and observed in one sentence."""
    label = {"event": "labelled as an anomaly", "agent": "of a labelled agent", "no": "not labelled"}[case["labelled"]]
    if "reason" in case:
        return f"{case['reason'] or 'not flagged, so without a sentence.'} {label.capitalize()}"
    sides = " and ".join(f"{side} {_describe(case[side])}" for side in ("expected", "observed"))
    return (
        f"{sides}; EU above {100 * case['eu_percentile']:.0f} %, distance above {100 * case['knn_percentile']:.0f} % "
        f"of events; {label}"
    )


def _describe(values: dict[str, Any]) -> str:
    start = values.get("start", 0.0)
    clock = f"{int(start // 60) % 24:02d}:{int(start % 60):02d}"
    return f"{values.get('poi') or 'a stay'} from {clock} for {values.get('duration', 0) / 60:.1f} h"


def draw_case(plt: Any, case: dict[str, Any], order: list[str]) -> Any:
    """Training weeks beside test weeks: a row a day, time of day across, coloured by kind of place."""
    styles = case_styles(case, order)
    days = [sorted({b[0] for b in case[part]}) or [0] for part in ("train", "test")]
    tall = max(2.0, 0.07 * max(d[-1] - d[0] + 1 for d in days) + 1.2)
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, tall))
    for axis, part, span in zip(axes, ("train", "test"), days, strict=True):
        for day, low, high, word in case[part]:
            axis.barh(day, (high - low) / 60, left=low / 60, height=0.85, **_look(styles.get(word, (OTHER, ""))))
        _name_days(axis, part, span)
    for day, low, high, _ in case["event"]:
        axes[1].barh(day, (high - low) / 60, left=low / 60, height=1.1, fill=False, edgecolor="black", linewidth=1.2)
    handles = _legend_patches(plt, case, styles)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3)
    return figure


def _name_days(axis: Any, part: str, span: list[int]) -> None:
    """Hours across, days downwards, a tick a week."""
    axis.set_xlim(0, 24)
    axis.set_ylim(span[-1] + 0.6, span[0] - 0.6)
    axis.set_xticks(range(0, 25, 6), [str(h) for h in range(0, 25, 6)])
    axis.set_yticks(range(span[0], span[-1] + 1, 7))
    axis.set_title("before the test weeks" if part == "train" else "test weeks")
    axis.set_xlabel("local time (hour)")
    axis.set_ylabel("since the first day (days)")


def _look(style: tuple[str, str]) -> dict[str, Any]:
    colour, hatch = style
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def _legend_patches(plt: Any, case: dict[str, Any], styles: Styles) -> dict[str, Any]:
    """What each colour and the frame stand for."""
    patch = partial(plt.Rectangle, (0, 0), 1, 1)
    handles = {word: patch(**_look(style)) for word, style in styles.items()}
    if any(block[3] not in styles for part in ("train", "test") for block in case[part]):
        handles["other"] = patch(color=OTHER)
    return {**handles, "the event": patch(fill=False, edgecolor="black", linewidth=2)}


def rank_kinds(cases: list[dict[str, Any]]) -> list[str]:
    """Kinds of place of some cases, the most frequent first."""
    words = Counter(str(block[3]) for case in cases for part in ("train", "test") for block in case[part])
    return sorted(words, key=lambda word: (-words[word], word))


def case_styles(case: dict[str, Any], order: list[str]) -> Styles:
    """Colour and hatch of a case's most frequent kinds of place; the event's own and the expected one are among them.

    They follow from the kind's place in the order, so that it looks the same in every case.
    """
    own = rank_kinds([case])
    words_shown = [*(block[3] for block in case["event"]), case["expected"].get("poi")]
    first = sorted(own, key=lambda word: (word not in words_shown, own.index(word)))[: len(KIND_COLOURS)]
    return {word: _style(order.index(word)) for word in order if word in first}


def _style(place: int) -> tuple[str, str]:
    return KIND_COLOURS[place % len(KIND_COLOURS)], HATCHES[place // len(KIND_COLOURS) % len(HATCHES)]
