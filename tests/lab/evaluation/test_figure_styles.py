"""Every figure can be read at the width of a page, and a method looks the same in all of them."""

from itertools import combinations

import numpy as np
import pytest

from ustad.lab.evaluation.drawing import plots
from ustad.lab.evaluation.experiments import DETECTORS, EXPERIMENTS, PREDICTORS
from ustad.lab.evaluation.figures import figures_by_experiment
from ustad.lab.evaluation.method_styles import FAMILIES, NO_METHODS, family, style_of
from ustad.lab.evaluation.result_tables import KIND_NAMES, LEVELS, NAMES, TERMS

pytest.importorskip("matplotlib")

WIDEST, SMALLEST = 3.5, 7  # inches, points
DATA = {"numosim-la (2,000 agents)": 3, "simla (5,000 agents)": 2, "simjordan (5,000 agents)": 1,
        "town (5,000 agents)": 1, "numosim-la (20,000 agents)": 1}  # fmt: skip
FIRST = next(iter(DATA))
BINS = {"x": [-4.0, -3.0, 0.5], "y": [-10.0, 2.0, 3.0], "count": [1, 20, 24_000], "size": [0.2, 0.6]}
SHARES = np.linspace(0.05, 1, 20)


def line(data, seed, result, **options):
    return {"data": data, "seed": seed, "source": {"name": data.split(" ")[0]}, "result": result, **options}


def seeds(data, method):
    """Other methods ran on fewer people than USTAD."""
    return range(1, DATA[data] + 1) if family(method) == "ustad" else range(1, 2)


def area(number):
    return {"auroc": 0.5 + 0.4 * (number % 11) / 11, "ap": 0.0005 + 0.3 * (number % 7) / 7}


def has_curve(data, method):
    """All networks on one data set; on the other so few that a figure has one row of panels."""
    return family(method) != "plain" if data == FIRST else method in ("ustad-plain", "lstm")


def detection_lines():
    training = {"curve": [9.0, 3.25, 2.0, 2.5], "best_epoch": 2, "stopped": "patience", "converged": True}
    return [
        line(data, seed, dict.fromkeys(LEVELS, area(number + seed)), method=method, window="day")
        | ({"training": training} if has_curve(data, method) else {})
        for data in list(DATA)[:2]
        for number, method in enumerate(dict.fromkeys((*DETECTORS, *PREDICTORS)))
        for seed in seeds(data, method)
    ]


def uncertainty_lines():
    curve = (100 * SHARES).tolist()
    curves = {"kept": SHARES.tolist(), "curves": dict.fromkeys(TERMS, curve), "own": dict.fromkeys(TERMS, curve)}
    classes = {"classes": [{"class": "house", "n": 90, "accuracy": 0.9, "eu": 0.5}]}
    methods = ("ustad-plain", "ustad-au", "ustad-eu", "ustad-none")
    counts = dict(zip(methods, (3, 2, 1, 3), strict=True))
    by_method = [
        line(FIRST, s, curves | classes, method=m) for m in methods for s in range(1, counts[m] + 1)
    ]  # fmt: skip
    sizes = [
        line(FIRST, seed, {"terms": {t: {"au": 1 + seed * weeks, "eu": 1 / weeks} for t in TERMS}}, weeks=weeks,
             steps="equal")
        for weeks in (1, 2, 3) for seed in (1, 2)
    ]  # fmt: skip
    return by_method + sizes


def other_lines():
    scores = {how: dict.fromkeys(LEVELS, area(i)) for i, how in enumerate(("pe", "loss", "pe_au_eu", "loss_knn"))}
    box = {"n": 172_071, "loss": [0, 0.1, 0.2, 0.3, 0.4], "knn": [2, 3, 4, 5, 6]}
    epistemic = {
        "terms": dict.fromkeys((*TERMS, "weekday"), BINS), "hexagons": BINS, "edges": [0.0, 1.0, 2.0], "n": 24_021,
        "knn_low_eu": [900, 100], "knn_high_eu": [100, 900], "pearson": 0.1, "pearson_tail": -0.25,
        "fit": {"slope": 1.0, "intercept": 0.0},
    }  # fmt: skip
    kinds = ["house", "convenience store", "high school", "gas station", "kindergarten", "supermarket", "fast food"]
    blocks = [
        [day, 60.0 * i, 60.0 * i + 50, kind] for day in range(28) for i, kind in enumerate([*kinds, "zoo", "bar"])
    ]
    case = {
        "kind": "novel", "train": blocks, "test": blocks, "event": [blocks[0]], "expected": {"poi": "house"},
        "labelled": "no", "reason": "",
    }  # fmt: skip
    return {
        "scores": [line(data, seed, scores) for data, n in DATA.items() for seed in range(1, n + 1)],
        "injections": [line(FIRST, 1, {"boxes": {k: box, "normal": box}}, kind=k) for k in KIND_NAMES],
        "epistemic": [line(FIRST, 1, epistemic)],
        "cases": [line(FIRST, 1, {"cases": [case]})],
    }


@pytest.fixture(scope="module")
def pictures():
    """Every planned figure by its name, drawn."""
    plt = plots()
    lines = {"detection": detection_lines(), "uncertainty": uncertainty_lines(), **other_lines()}
    results = {**{name: [] for name in EXPERIMENTS}, **lines}
    figures = [figure for own in figures_by_experiment(results).values() for figure in own]
    drawn = {}
    for figure in figures:
        drawn[figure.name] = figure.draw(plt)
        drawn[figure.name].canvas.draw()
        plt.close(drawn[figure.name])  # it can still be read
    return drawn


def visible_axes(picture):
    return [axis for axis in picture.axes if axis.axison]


def texts(picture):
    from matplotlib.text import Text

    return [text for text in picture.findobj(Text) if text.get_visible() and text.get_text().strip()]


def names_of(method):
    return NAMES[method].replace("`", "")


def test_every_kind_of_figure_is_drawn(pictures):
    kinds = {name.split("-")[0] for name in pictures}
    assert kinds == {
        "case", "classes", "curves", "detection", "distance", "injections", "loss", "rejection", "scores", "training",
    }  # fmt: skip


def test_no_figure_is_wider_than_the_text_of_a_page_or_higher_than_a_page(pictures):
    sizes = {name: picture.get_size_inches() for name, picture in pictures.items()}
    assert {name: size for name, size in sizes.items() if size[0] > WIDEST or size[1] > 9} == {}


def test_no_type_is_too_small(pictures):
    small = {
        (name, text.get_text(), text.get_fontsize())
        for name, picture in pictures.items()
        for text in texts(picture)
        if text.get_fontsize() < SMALLEST
    }
    assert small == set()


def ticks_within(side):
    """Labels of the ticks that are seen: matplotlib keeps some beyond the ends of an axis."""
    low, high = sorted(side.get_view_interval())
    ticks = [tick.label1 for tick in side.get_major_ticks() if low <= tick.get_loc() <= high]
    return [label for label in ticks if label.get_visible() and label.get_text()]


def words_of(picture):
    """Everything written but ticks."""
    of_panels = [label_of(axis, words) for axis in visible_axes(picture) for words in ("title", "xlabel", "ylabel")]
    legends = [*picture.legends, *(axis.get_legend() for axis in picture.axes if axis.get_legend())]
    return [*picture.texts, *of_panels, *(text for legend in legends for text in legend.get_texts())]


def test_no_words_leave_the_paper(pictures):
    outside = []
    for name, picture in pictures.items():
        paper = picture.bbox
        ticks = [label for axis in visible_axes(picture) for label in ticks_within(axis.xaxis)]
        for label in (label for label in (*words_of(picture), *ticks) if label.get_text()):
            box = label.get_window_extent()
            if min(box.x0 - paper.x0, paper.x1 - box.x1, box.y0 - paper.y0, paper.y1 - box.y1) < -1:
                outside.append((name, label.get_text()))
    assert outside == []


def test_words_of_neighbouring_panels_stand_apart(pictures):
    overlapping = []
    for name, picture in pictures.items():
        for words in ("title", "xlabel", "ylabel"):
            labels = [label_of(axis, words) for axis in visible_axes(picture)]
            boxes = [(label.get_text(), label.get_window_extent()) for label in labels if label.get_text()]
            overlapping += [(name, one[0]) for one, other in combinations(boxes, 2) if one[1].overlaps(other[1])]
    assert overlapping == []


def label_of(axis, words):
    return {"title": axis.title, "xlabel": axis.xaxis.label, "ylabel": axis.yaxis.label}[words]


def test_ticks_stand_apart(pictures):
    overlapping = []
    for name, picture in pictures.items():
        for axis in visible_axes(picture):
            for side in (axis.xaxis, axis.yaxis):
                boxes = [tick.get_window_extent() for tick in ticks_within(side)]
                overlapping += [name for one, other in combinations(boxes, 2) if one.overlaps(other)]
    assert overlapping == []


def test_every_axis_of_numbers_has_a_unit(pictures):
    without = []
    for name, picture in pictures.items():
        common = {"x": picture.get_supxlabel(), "y": picture.get_supylabel()}
        for axis in visible_axes(picture):
            for side in (axis.xaxis, axis.yaxis):
                words = side.get_label_text() or common[side.axis_name]
                ticks = [tick.get_text() for tick in side.get_ticklabels() if tick.get_visible()]
                is_of_numbers = any(t.replace("−", "").replace(",", "").replace(".", "").isdigit() for t in ticks)
                is_bar_of_colours = axis.get_label() == "<colorbar>"
                if is_of_numbers and "(" not in words and not (is_bar_of_colours and side is axis.xaxis):
                    without.append((name, words))
    assert without == []


def test_every_panel_says_how_many_it_shows(pictures):
    """In its title, its legend or the figure's, or its ticks (those of the panel at the left where they are shared)."""
    without = []
    for name, picture in pictures.items():
        if name.startswith("case"):  # of one person
            continue
        legends = [text.get_text() for legend in picture.legends for text in legend.get_texts()]
        for axis in (axis for axis in visible_axes(picture) if axis.get_label() != "<colorbar>"):
            legend = axis.get_legend()
            words = [axis.get_title(), *legends, *(text.get_text() for text in (legend.get_texts() if legend else []))]
            for neighbour in (axis, visible_axes(picture)[0]):
                words += [t.get_text() for t in (*neighbour.get_xticklabels(), *neighbour.get_yticklabels())]
            if not any("n = " in text for text in words):
                without.append(name)
    assert without == []


# ------------------------------------------------------------------------------------------- one style a method
def colour_of(container):
    from matplotlib.colors import to_hex

    return to_hex(container.lines[0].get_color()).upper()


def drawn_colours(name, picture):
    """(name of a method, its colour) of everything that is drawn of a method."""
    from matplotlib.colors import to_hex

    left = picture.axes[0]
    if name.startswith("detection"):
        rows = [label.get_text().rsplit(", n = ", 1)[0] for label in left.get_yticklabels()]
        return [pair for axis in picture.axes for pair in zip(rows, map(colour_of, axis.containers), strict=True)]
    if name.startswith("rejection"):
        containers = [c for axis in visible_axes(picture) for c in axis.containers]
        return [(c.get_label().rsplit(", n = ", 1)[0].split(", by")[0], colour_of(c)) for c in containers]
    if name.startswith("curves"):
        panels = visible_axes(picture)
        return [(axis.get_title().split("\n")[0], to_hex(axis.lines[0].get_color()).upper()) for axis in panels]
    return []


def test_a_method_has_one_colour_in_all_figures(pictures):
    colours = {}
    for name, picture in pictures.items():
        for method, colour in drawn_colours(name, picture):
            colours.setdefault(method, set()).add(colour)
    methods = set(dict.fromkeys((*DETECTORS, *PREDICTORS)))
    assert set(colours) == {names_of(method) for method in methods}
    assert {method: found for method, found in colours.items() if len(found) > 1} == {}
    assert {names_of(m): {style_of(m).colour} for m in methods} == colours


def test_labels_say_how_many_data_sets_each_method_ran_on(pictures):
    labels = [t.get_text() for t in pictures["detection-simla-5-000-agents-events"].axes[0].get_yticklabels()]
    assert {"USTAD, n = 2", "USTAD-AU, n = 2", "CTLE, n = 1", "preset best (ours), n = 1"} < set(labels)
    (legend,) = pictures["rejection-numosim-la-2-000-agents"].legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words[0] == "USTAD, n = 3"
    assert {"USTAD-AU, n = 2", "USTAD-EU, n = 1", "USTAD-none, n = 3"} < set(words)


def test_variants_of_ustad_can_be_told_apart_without_colour():
    variants = [style_of(m) for m in ("ustad-plain", "ustad-au", "ustad-eu", "ustad-none")]
    assert len({style.marker for style in variants}) == len({style.line for style in variants}) == len(variants)
    others = [style_of(m) for m in ("ustad-minmax", "ustad-lambda", "ustad-trips", "transformer", "ibat")]
    assert len({style.marker for style in (*variants, *others)}) == len(variants) + len(others)


def test_a_method_told_of_trips_has_the_colour_it_has_without():
    assert style_of("ustad-trips").colour == style_of("ustad-plain").colour
    assert style_of("ctle-trips").colour == style_of("ctle").colour
    assert style_of("ustad-none-trips") == style_of("dual-tr-trips")  # the same network


#: How people without one kind of cone see linear red, green and blue (Machado, Oliveira and Fernandes, 2009).
VISION = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "without red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "without green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "without blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour, vision):
    """CIELAB coordinates of a colour as it is seen."""
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.array(vision) @ linear, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_colours_of_methods_and_of_other_things_can_be_told_apart(vision):
    methods = {style_of(m).colour for m in (*DETECTORS, *PREDICTORS)} | {s.colour for s in FAMILIES.values()}
    for palette in (methods, {style.colour for style in NO_METHODS}):
        seen = [lab(colour, VISION[vision]) for colour in palette]
        assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > 15


def test_what_is_no_method_has_no_methods_colour():
    assert not {style_of(m).colour for m in (*DETECTORS, *PREDICTORS)} & {style.colour for style in NO_METHODS}
