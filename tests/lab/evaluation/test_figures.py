"""Figures can be read: labels and ticks stand apart, colours mean something, captions say how many data sets."""

from itertools import combinations

import numpy as np
import pytest

from ustad.events.encoder import UNKNOWN
from ustad.lab.evaluation.binning import hexagons, pool_hexagons, pool_histograms
from ustad.lab.evaluation.case_figures import case_styles, draw_case, rank_kinds
from ustad.lab.evaluation.comparison_figures import draw_boxes
from ustad.lab.evaluation.curve_figures import curves_by_method, draw_curves
from ustad.lab.evaluation.drawing import COLOURS, label_apart, plain_ticks, plots, steps_that_fit, thin_ticks
from ustad.lab.evaluation.experiments import DETECTORS, EXPERIMENTS, PREDICTORS
from ustad.lab.evaluation.figures import plan_figures
from ustad.lab.evaluation.method_styles import FAMILIES, family, style_of
from ustad.lab.evaluation.uncertainty_figures import against_first, draw_classes, draw_training_size

pytest.importorskip("matplotlib")


@pytest.fixture
def plt():
    found = plots()
    yield found
    found.close("all")


def test_figures_do_not_hang_on_what_a_notebook_set_before(plt):
    plt.rcParams["figure.dpi"] = 60
    assert plots().figure().dpi == 100


def overlapping(labels):
    boxes = [label.get_window_extent() for label in labels]
    return [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]


def test_labels_of_points_that_lie_together_stand_apart(plt):
    figure, axis = plt.subplots(figsize=(5, 3.5))
    points = [(0.73, 92.0, 12.0, "house"), (0.74, 92.2, 9.0, "apartment"), (1.4, 20.0, 3.0, "hotel")]
    axis.scatter([p[0] for p in points], [p[1] for p in points])
    axis.margins(0.2)
    labels = label_apart(axis, points)
    figure.canvas.draw()
    assert [label.get_text() for label in labels] == ["house", "apartment", "hotel"]
    assert not overlapping(labels)


def test_labels_without_room_are_left_out_the_important_ones_stay(plt):
    figure, axis = plt.subplots(figsize=(3, 2))
    points = [(0.001 * i, 0.0, 2.0, f"kind of place {i}") for i in range(40)]
    axis.scatter([p[0] for p in points], [p[1] for p in points])
    axis.set_xlim(-1, 1)
    labels = label_apart(axis, points)
    figure.canvas.draw()
    assert labels[0].get_text() == "kind of place 0"
    assert 0 < len(labels) < 40
    assert not overlapping(labels)
    assert len(axis.texts) == len(labels)


def test_no_label_leaves_the_axes(plt):
    figure, axis = plt.subplots(figsize=(3, 2))
    axis.scatter([0, 1], [0, 1])
    axis.margins(0)
    labels = label_apart(axis, [(0.0, 0.0, 1.0, "lower left"), (1.0, 1.0, 1.0, "upper right")])
    figure.canvas.draw()
    room = axis.get_window_extent()
    for label in labels:
        box = label.get_window_extent()
        assert room.x0 <= box.x0
        assert box.x1 <= room.x1
        assert room.y0 <= box.y0
        assert box.y1 <= room.y1
    assert len(labels) == 2


@pytest.mark.parametrize("highest", [1.3, 2.0, 4.0, 8.0, 12.0, 60.0, 900.0, 1e5])
def test_ticks_of_a_logarithmic_axis_can_be_read_however_far_it_reaches(plt, highest):
    figure, axis = plt.subplots(figsize=(3.5, 2.8))
    axis.plot([1, 2, 3], [1.0, highest, 0.7])
    axis.set_yscale("log")
    plain_ticks(plt, axis.yaxis, steps_that_fit(axis.yaxis))
    figure.canvas.draw()
    low, high = axis.get_ylim()
    seen = [t.label1 for t in axis.yaxis.get_major_ticks() if low <= t.get_loc() <= high]
    assert len(seen) >= 2
    assert not overlapping(seen)


@pytest.mark.parametrize("lowest", [0.0006, 0.004, 0.012, 0.05, 0.09])
@pytest.mark.parametrize("highest", [0.13, 0.4, 0.6])
def test_ticks_side_by_side_have_room_in_a_narrow_panel(plt, lowest, highest):
    figure, axis = plt.subplots(figsize=(0.95, 2.0))
    axis.plot([lowest, highest], [1, 2])
    axis.set_xscale("log")
    thin_ticks(plt, axis.xaxis, least=0.45)
    figure.canvas.draw()
    low, high = axis.get_xlim()
    seen = [tick.label1 for tick in axis.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert seen
    assert not overlapping(seen)


def case(event="library", expected="house"):
    """Eight frequent kinds of place, and one that occurs once: the event's."""
    kinds = ["house", "shop", "park", "gym", "office", "cafe", "bar", "bank"]
    train = [[day, 60.0 * i, 60.0 * i + 50, kind] for day in range(9) for i, kind in enumerate(kinds)]
    mark = [10, 700.0, 800.0, event]
    return {
        "kind": "novel",
        "train": train,
        "test": [[10, 0.0, 60.0, "house"], mark],
        "event": [mark],
        "expected": {"start": 700.0, "duration": 60.0, "poi": expected},
        "observed": {"start": 700.0, "duration": 100.0, "poi": event},
        "eu_percentile": 0.5,
        "knn_percentile": 1.0,
        "labelled": "no",
    }


def styles_of(*cases):
    return [case_styles(one, rank_kinds(list(cases))) for one in cases]


def test_the_marked_stays_kind_has_a_look_of_its_own_however_rare_it_is():
    (styles,) = styles_of(case(expected="bank"))
    assert "library" in styles
    assert "bank" in styles  # what was expected in its place
    assert len(set(styles.values())) == len(styles) == len(COLOURS) - 1
    assert "#000000" not in {colour for colour, _ in styles.values()}  # the frame of the event


def test_a_kind_of_place_looks_the_same_in_every_case_and_like_no_other():
    rare = {**case(event="zoo", expected="farm"), "train": [[day, 0.0, 50.0, "farm"] for day in range(30)]}
    found = styles_of(case(), rare, case(event="house"))
    looks = {(kind, style) for styles in found for kind, style in styles.items()}
    kinds = {kind for kind, _ in looks}
    assert {"library", "zoo", "farm", "house"} <= kinds
    assert len(looks) == len(kinds) == len({style for _, style in looks})


def test_a_case_names_its_colours_the_rest_and_the_frame(plt):
    (legend,) = draw_case(plt, case(), rank_kinds([case()])).legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words == [*styles_of(case())[0], "other", "the event"]
    shown = case()
    shown["train"] = []
    (legend,) = draw_case(plt, shown, rank_kinds([case()])).legends
    assert [text.get_text() for text in legend.get_texts()] == ["house", "library", "the event"]


def test_captions_say_of_how_many_data_sets_a_figure_is():
    def lines(name, **options):
        results = {
            "uncertainty": {"classes": [], "curves": {}},
            "injections": {"boxes": {}},
            "epistemic": {},
            "cases": {"cases": [case()]},
        }
        return [{"data": "town", "seed": seed, "result": results[name], **options} for seed in (9, 8)]

    found = plan_figures(
        {
            **{name: [] for name in EXPERIMENTS},
            "uncertainty": lines("uncertainty", method="ustad-plain"),
            "injections": lines("injections", kind="swap"),
            "epistemic": lines("epistemic"),
            "cases": lines("cases"),
        }
    )
    captions = {name: caption for figures in found.values() for name, caption in figures}
    pooled = {"classes-town", "injections-town", "loss-eu-town", "distance-eu-town"}
    assert {name for name, caption in captions.items() if caption.endswith("; 2 data sets together")} == pooled
    assert {name for name, caption in captions.items() if "seed 8" in caption} == {"case-town-novel-all-events"}
    assert "deviation over data sets" in captions["rejection-town"]


def test_a_figure_by_weeks_of_training_has_at_least_two_numbers_of_weeks():
    def line(data, weeks, **steps):
        return {"data": data, "seed": 1, "weeks": weeks, **steps, "result": {"terms": {}}}

    all_weeks = [line(data, 3) for data in ("town", "city", "bay")]
    fewer = [line("city", 1), line("city", 2), line("bay", 1, steps="equal")]  # the city's after fewer steps
    found = plan_figures({**{name: [] for name in EXPERIMENTS}, "uncertainty": all_weeks + fewer})
    names = [name for name, _ in found["uncertainty"]]
    assert [name for name in names if name.startswith("training-size")] == ["training-size-bay"]


def test_without_kinds_of_place_their_figure_is_empty_but_drawn(plt):
    lines = [{"data": "town", "seed": 1, "method": "ustad-plain", "result": {"classes": []}}]
    (axis,) = draw_classes(plt, lines).axes
    assert axis.get_xlabel() == "mean EU of the kind of place (nats)"
    assert not axis.texts


def test_places_of_unknown_kind_are_no_kind_of_place(plt):
    kinds = [("house", 90, 0.9, 0.5), (UNKNOWN, 50, 0.0, 1.5), ("shop", 10, 0.2, 2.5)]
    rows = [{"class": kind, "n": n, "accuracy": right, "eu": eu} for kind, n, right, eu in kinds]
    lines = [{"data": "town", "seed": 1, "method": "ustad-plain", "result": {"classes": rows}}]
    (axis,) = draw_classes(plt, lines).axes
    assert [text.get_text() for text in axis.texts] == ["house", "shop"]
    assert axis.collections[0].get_offsets().tolist() == [[0.5, 90.0], [2.5, 20.0]]


def test_kinds_of_place_are_of_all_data_sets_by_their_events(plt):
    def line(seed, n, accuracy, eu):
        return {"seed": seed, "method": "ustad-plain", "data": "town",
                "result": {"classes": [{"class": "house", "n": n, "accuracy": accuracy, "eu": eu}]}}  # fmt: skip

    others = [line(seed, 10, 0.6, 3.0) for seed in (2, 3, 4, 5)]
    (axis,) = draw_classes(plt, [line(1, 120, 1.0, 1.0), *others]).axes
    assert axis.get_title() == "USTAD, n = 160 events"
    assert axis.collections[0].get_offsets().tolist() == [[1.5, 90.0]]
    upright = [bar.get_segments()[0][:, 1] for bar in axis.collections[1:]]
    assert max(ends.max() for ends in upright) == 100.0  # 90 ± 18: no bar leaves what there can be
    across = [np.ptp(bar.get_segments()[0][:, 0]) for bar in axis.collections[1:]]
    assert max(across) == pytest.approx(2 * np.std([1.0, 3.0, 3.0, 3.0, 3.0], ddof=1))
    (few,) = draw_classes(plt, [line(1, 120, 1.0, 1.0), *others[:3]]).axes
    assert max(np.ptp(bar.get_segments()[0]) for bar in few.collections[1:]) == pytest.approx(90 - 1.5, abs=9)
    assert {np.ptp(bar.get_segments()[0][:, 0]) for bar in few.collections[1:]} == {0.0}  # four have no bar


def test_boxes_of_injections_are_of_all_data_sets(plt):
    def line(seed, loss):
        box = {"n": 10 * seed, "loss": [loss - 2, loss - 1, loss, loss + 1, loss + 2], "knn": []}
        return {"seed": seed, "kind": "swap", "data": "town", "result": {"boxes": {"swap": box, "normal": box}}}

    left, right = draw_boxes(plt, [line(1, 5.0), line(2, 9.0)]).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["swap, n = 30", "normal, n = 30"]
    dots = [own.get_xdata().tolist() for own in left.lines if own.get_marker() == "."]
    assert dots == [[5.0, 9.0], [5.0, 9.0]]
    medians = [own.get_xdata().tolist() for own in left.lines if own.get_linewidth() == 1.5]
    assert medians == [[7.0, 7.0], [7.0, 7.0]]
    assert not right.lines


def test_weeks_of_training_show_geometric_means_and_the_spread_of_logarithms(plt):
    def line(seed, weeks, eu):
        return {"seed": seed, "weeks": weeks, "result": {"terms": {"x": {"au": 1.0, "eu": eu}}}}

    ratios = [0.25, 0.25, 0.5, 1.0, 1.0]
    lines = [line(seed, weeks, eu) for seed, ratio in enumerate(ratios) for weeks, eu in ((1, 1.0), (3, ratio))]
    _, axis = draw_training_size(plt, lines).axes
    (container,) = axis.containers
    line_drawn, _, (bars,) = container
    assert line_drawn.get_ydata() == pytest.approx([1.0, 0.5])
    factor = np.exp(np.std(np.log(ratios), ddof=1))
    assert bars.get_segments()[1][:, 1] == pytest.approx([0.5 / factor, 0.5 * factor])
    _, axis = draw_training_size(plt, lines[:8]).axes  # four data sets: means without bars
    assert np.ptp(axis.containers[0][2][0].get_segments()[1][:, 1]) == 0.0


def test_weeks_that_were_not_run_are_named():
    def lines(*weeks):
        return [{"data": "town", "seed": 1, "weeks": w, "steps": "equal", "result": {"terms": {}}} for w in weeks]

    def caption(own):
        results = {**{name: [] for name in EXPERIMENTS}, "uncertainty": own}
        return dict(plan_figures(results)["uncertainty"])["training-size-town"]

    assert caption(lines(1, 3)).endswith("; not run: 2 weeks")
    assert "not run" not in caption(lines(1, 2, 3))


def test_hexagons_of_several_data_sets_hold_all_of_their_events():
    random = np.random.default_rng(4)
    clouds = [random.normal(centre, 1.0, (5000, 2)) for centre in (0.0, 6.0)]
    parts = [hexagons(*cloud.T, logarithms=False) for cloud in clouds]
    pooled = pool_hexagons(parts)
    assert sum(pooled["count"]) == pytest.approx(10_000)
    x, y, count = (np.array(pooled[key]) for key in ("x", "y", "count"))
    is_near = (x < 3) & (y < 3)
    assert count[is_near].sum() == pytest.approx(5000, abs=100)
    assert np.average(x[~is_near], weights=count[~is_near]) == pytest.approx(clouds[1][:, 0].mean(), abs=0.1)
    assert pool_hexagons(parts[:1]) is parts[0]
    assert pool_hexagons([hexagons(np.empty(0), np.empty(0))] * 2)["x"] == []


def test_histograms_of_several_data_sets_share_their_bins_evenly():
    edges, counts = pool_histograms([[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]], [[4, 2], [8, 6]])
    assert edges.tolist() == [0.0, 2.0, 4.0]
    assert counts.tolist() == [14.0, 6.0]


def test_every_method_has_the_colour_of_its_family():
    kinds = {method: family(method) for method in (*DETECTORS, *PREDICTORS)}
    assert set(kinds.values()) == set(FAMILIES)
    assert {m for m, kind in kinds.items() if kind == "ours"} == {"ustad-default", "ustad-quick"}
    assert {m for m, kind in kinds.items() if kind == "plain"} == {
        "random", "visit-rate", "visit-rate-causal", "visit-rate-category", "visit-rate-category-hour", "distance",
        "ibat",
    }  # fmt: skip
    assert kinds["ustad-plain"] == kinds["dual-tr"] == "ustad"


def test_a_network_that_answers_two_questions_has_one_curve(plt):
    def line(experiment, method, seed):
        training = {"curve": [3.0, 2.0, 2.5], "best_epoch": 1, "stopped": "patience", "converged": True}
        return {"experiment": experiment, "method": method, "seed": seed, "training": training, "data": "town"}

    lines = [
        line("detection", "transformer", 1),
        line("detection", "ustad-none", 1),
        line("prediction", "transformer", 1),
        line("prediction", "transformer", 2),
        line("prediction", "dual-tr", 1),
        line("prediction", "lstm", 1),
    ]
    counts = {method: len(runs) for method, runs in curves_by_method(lines).items()}
    assert counts == {"transformer": 2, "dual-tr": 1, "lstm": 1}
    panels = [axis for axis in draw_curves(plt, curves_by_method(lines)).axes if axis.get_title()]
    assert [axis.get_title() for axis in panels] == [
        "Transformer\nn = 2, 2 ended", "Dual-Tr\nn = 1, 1 ended", "LSTM\nn = 1, 1 ended"
    ]  # fmt: skip
    assert panels[0].lines[0].get_color() == style_of("transformer").colour
    assert panels[1].lines[0].get_color() == style_of("ustad-none").colour  # the same network


def test_uncertainty_by_weeks_is_against_the_same_seeds_first_week():
    def line(seed, weeks, eu):
        return {"seed": seed, "weeks": weeks, "result": {"terms": {"x": {"au": 1.0, "eu": eu}}}}

    lines = [line(1, 1, 4.0), line(1, 3, 1.0), line(2, 1, 2.0), line(2, 2, 3.0), line(2, 3, 1.0), line(3, 3, 9.0)]
    ratios = against_first(lines, [1, 2, 3], "x", "eu")
    assert np.array_equal(ratios, [[1.0, np.nan, 0.25], [1.0, 1.5, 0.5]], equal_nan=True)
    assert not len(against_first(lines, [1, 2, 3], "y", "eu"))


def test_ticks_of_weeks_say_how_many_data_sets_each_mean_is_of(plt):
    def line(seed, weeks):
        return {"seed": seed, "weeks": weeks, "result": {"terms": {"x": {"au": 1.0 + seed, "eu": 2.0 / weeks}}}}

    lines = [line(1, 1), line(2, 1), line(3, 1), line(1, 3), line(2, 3), line(9, 3)]  # the last has nothing to compare
    ticks = [label.get_text() for label in draw_training_size(plt, lines).axes[0].get_xticklabels()]
    assert ticks == ["1\nn = 3", "3\nn = 2"]
