"""What is computed in each experiment: one pure function per kind of cell, from fitted models to plain numbers.

Everything that a table or a figure shows is in what these functions return; they hold aggregates, never events
(but for the few chosen case studies, which hold times of day and kinds of place only).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import pearsonr, spearmanr

from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.events.encoder import UNKNOWN
from ustad.lab.baselines.ablations import Ustad
from ustad.lab.baselines.prediction_errors import prediction_errors
from ustad.lab.baselines.protocol import agents_by_worst, event_table, find
from ustad.lab.evaluation.ablated_scores import ABLATIONS, Ablation, combine
from ustad.lab.evaluation.binning import five_numbers, hexagons, histogram
from ustad.lab.evaluation.detection_metrics import auroc, average_precision, evaluate, incident_scores
from ustad.lab.evaluation.fitted_models import (
    USTAD,
    WHOLE_PRESETS,
    FittedModels,
    Measurement,
    Window,
    class_name,
    detector_of,
    look_back_only,
    measure_events,
)
from ustad.lab.prediction import prediction_metrics
from ustad.lab.red_team import inject
from ustad.lab.red_team.injections import KINDS
from ustad.scores import Scores
from ustad.scoring.calibration import Parts
from ustad.scoring.rejection import rejection_curve, uncertainty

Options = dict[str, Any]
NUMERIC = ("x", "y", "start", "duration")
VARIANTS = ("ustad-plain", "ustad-au", "ustad-eu", "ustad-none", "ustad-minmax")
INJECTION_SCORES: tuple[Ablation, ...] = ("loss", "eu", "knn", "loss_knn")
#: Baselines whose score is ranks among the scored events, as the paper's is.
RANK_METHODS = ("ctle", "transformer")
#: How events are counted by their incident; older results of our presets added the other events of their incidents.
BY_NEIGHBOURS = "neighbours"
REJECTED_SHARE = 0.05
SHARES = np.linspace(0.05, 1.0, 20)


# --------------------------------------------------------------------------------------------- prediction
def prediction(models: FittedModels, method: str, **_: Any) -> Options:
    """MAE, MAPE and accuracy per term; with uncertainty also without the most uncertain five per cent."""
    model = models.fit_model(method)
    if isinstance(model, Ustad):
        measurement = models.measure(method)
        total = uncertainty(measurement.parts) if model.uncertainty != "none" else None
        names = [t.name for t in model.encoder.terms if f"observed_{t.name}" in measurement.columns]
        expected, observed = (
            {n: measurement.columns[f"{what}_{n}"] for n in names} for what in ("expected", "observed")
        )
        rows = prediction_metrics(model.encoder, expected, observed, total, reject=REJECTED_SHARE)
    else:
        rows = prediction_errors(model, models.period("test", method), models.period("before", method))
    return {"rows": [{k: v for k, v in row.items() if v is not None} for row in rows.to_pylist()]}


# ---------------------------------------------------------------------------------------------- detection
def detection(models: FittedModels, method: str, window: Window = "day", **_: Any) -> Options:
    """AUROC and average precision of events and agents, recurring and non-recurring anomalies also apart."""
    if method in WHOLE_PRESETS:
        return figures(models, models.preset_scores(WHOLE_PRESETS[method]))
    tail_scores = None
    if issubclass(find(class_name(method)), Ustad):
        measurement = models.measure(method, window)
        scores = make_scores(models, measurement.events, combine(measurement.parts, "loss_knn"))
        if window == "day":
            tail_scores = combine(measurement.parts, "loss_knn", models.reference(method))
    else:
        model: Any = models.fit_model(method)
        test, before, validation, train = (models.period(p, method) for p in ("test", "before", "validation", "train"))
        scores = (look_back_only(model) if window == "past" else model).score(test, before)
        if window == "day" and class_name(method) in RANK_METHODS:
            tail_scores = model.rate_calibrated(test, before, validation, train)
    result = figures(models, scores)
    if tail_scores is not None:
        result["calibrated"] = figures(models, make_scores(models, models.test, tail_scores))
    return result


def make_scores(models: FittedModels, events: pa.Table, score: np.ndarray) -> Scores:
    """Score tables of events and, by their most unusual event, of agents."""
    schema = models.data.schema
    return Scores(event_table(events, schema, score), agents_by_worst(events, schema, score))


def figures(models: FittedModels, scores: Scores) -> Options:
    """Events by their own score, by their incident's (`incidents`) and those alone that were meant (`meant`); agents.

    What stands beside an inserted visit is shortened by it and labelled too: it is no part of `meant`, on either side.
    """
    data = models.data
    options = {"exclude_agents": data.meta.get("exclude_agents", []), "bootstrap": 0}
    events = scores.events if data.labels is not None else None
    if events is not None and "incident_id" in events.column_names:  # by their neighbours, as those of other methods
        events = events.drop_columns(["incident_id"])
    levels = evaluate(events, scores.agents, data.labels, data.agent_labels, **options)
    labels = data.labels
    if events is not None and labels is not None and "role" in labels.column_names:
        is_beside = pc.fill_null(pc.equal(labels["role"], "neighbour"), False)
        beside = labels.filter(is_beside)["stay_id"].to_pylist()
        own_labels = labels.filter(pc.invert(is_beside))
        levels["meant"] = evaluate(events, None, own_labels, None, exclude_events=beside, **options)["events"]
    figure_names = ("auroc", "ap", "n", "positives", "prevalence")
    result = {
        level: {**{k: figure[k] for k in figure_names}, **figure.get("by", {}).get("recurring", {})}
        for level, figure in levels.items()
    }
    if "incidents" in result:
        result["incidents"]["rule"] = BY_NEIGHBOURS
    return result


# ------------------------------------------------------------------------------------------------- scores
def scores(models: FittedModels, **_: Any) -> Options:
    """The same model under every score: PE, loss, PE + AU + EU, loss & kNN, and the single parts."""
    measurement, normal = models.measure(USTAD), models.reference(USTAD)

    def measure_score(how: Ablation, against: Any) -> Options:
        return figures(models, make_scores(models, measurement.events, combine(measurement.parts, how, against)))

    by_rank: Options = {how: measure_score(how, None) for how in ABLATIONS}
    return {**by_rank, "calibrated": {how: measure_score(how, normal) for how in ABLATIONS}}


# -------------------------------------------------------------------------------------------- uncertainty
def rejection(models: FittedModels, method: str, **_: Any) -> Options:
    """Error of each term against the share kept, surest first; mean AU and EU; EU and accuracy by kind of place.

    Events are sorted by the paper's sum of uncertainties over all terms and, in `own`, by the term's own.
    """
    measurement = models.measure(method)
    total = {
        **dict.fromkeys(("ustad-plain", "ustad-minmax"), measurement.parts.au + measurement.parts.eu),
        "ustad-au": measurement.parts.au,
        "ustad-eu": measurement.parts.eu,
    }.get(method)
    errors = _errors(measurement)
    order = None if total is None else np.nansum(total.astype(np.float64), axis=1)
    result: Options = {
        "kept": SHARES.round(3).tolist(),
        "curves": {name: _curve(values, order) for name, values in errors.items()},
    }
    if total is not None:
        columns = dict(zip(measurement.parts.names, total.astype(np.float64).T, strict=True))
        own = {n: np.nan_to_num(columns[n], nan=np.inf) for n in errors}
        result["own"] = {name: _curve(values, own[name]) for name, values in errors.items()}
        result["terms"] = _mean_uncertainties(measurement.parts)
    if method == USTAD:
        result["classes"] = _classes(measurement)
    return result


def _errors(measurement: Measurement) -> dict[str, np.ndarray]:
    """Absolute errors of the numbers in their own units; 0 and 1 for right and wrong kinds of place."""
    errors = {name: np.asarray(measurement.columns[f"error_{name}"], float) for name in NUMERIC}
    if "expected_poi" in measurement.columns:
        is_known = np.array([value not in (None, UNKNOWN) for value in measurement.columns["observed_poi"]])
        wrong = (measurement.columns["expected_poi"] != measurement.columns["observed_poi"]).astype(float)
        errors["poi"] = np.where(is_known, wrong, np.nan)
    return errors


def _curve(errors: np.ndarray, order: np.ndarray | None) -> list[float]:
    if order is None:  # nothing to order by: the same error whatever is kept
        return [float(np.nanmean(errors))] * len(SHARES)
    return [float(v) for v in rejection_curve(errors, order, SHARES)["error"].to_numpy()]


def _classes(measurement: Measurement) -> list[Options]:
    """Per kind of place: how often it is, how often it is predicted right, mean EU of that prediction."""
    if "observed_poi" not in measurement.columns:
        return []
    observed = np.array(["" if value in (None, UNKNOWN) else value for value in measurement.columns["observed_poi"]])
    right = measurement.columns["expected_poi"] == measurement.columns["observed_poi"]
    eu = measurement.parts.eu[:, measurement.parts.names.index("poi")]
    rows = [(name, observed == name) for name in np.unique(observed) if name]
    return [
        {"class": str(name), "n": int(m.sum()), "accuracy": float(right[m].mean()), "eu": float(eu[m].mean())}
        for name, m in rows
    ]


def training_size(models: FittedModels, weeks: int, steps: str | None = None, **_: Any) -> Options:
    """Mean AU and EU of each term on two test weeks, after so many weeks of training: with patience as long in
    epochs as for all of them or, with `steps` "equal", in steps."""
    measurement = models.measure(USTAD, weeks=weeks, equal_steps=steps == "equal")
    early = pc.is_in(measurement.events["stay_id"], models.first_test_weeks(2)["stay_id"].combine_chunks())
    parts = measurement.parts.take(np.flatnonzero(early.to_numpy()))
    return {"weeks": weeks, "terms": _mean_uncertainties(parts)}


def _mean_uncertainties(parts: Parts) -> dict[str, dict[str, float]]:
    """Mean AU and EU of each term, in the network's own units."""
    return {
        name: {"au": float(np.nanmean(parts.au[:, i])), "eu": float(np.nanmean(parts.eu[:, i]))}
        for i, name in enumerate(parts.names)
    }


# --------------------------------------------------------------------------------------------- injections
def injections(models: FittedModels, kind: str, method: str = USTAD, **_: Any) -> Options:
    """One kind of injection (or all six): AUROC and AP of each score, and boxes of loss and distance by kind.

    `incidents`: by the highest score of each event and those beside it. `changed`: without the stays that are labelled
    only because they stand beside a changed one, as are the boxes.
    """
    changed_data, changed_agents = _inject(models, kind)
    labels: Any = changed_data.labels
    split = models.data.split(SplitConfig())
    events = changed_data.between(split.test_first, split.test_last)
    events = events.filter(pc.is_in(events["agent_id"], changed_agents))
    if method in WHOLE_PRESETS:
        base, new = _preset_scores(models, WHOLE_PRESETS[method], changed_data.only(changed_agents.to_pylist()))
        rows, events = _find_untouched(models, base, changed_agents), new
        untouched_events = base.take(rows)
        scores_by_way = {"score": np.concatenate([base["score"].to_numpy()[rows], new["score"].to_numpy()])}
    else:
        own, other = models.measure(USTAD), measure_events(detector_of(models.fit_model(USTAD)), events, models.before)
        rows = _find_untouched(models, own.events, changed_agents)
        untouched_events = own.events.take(rows)
        parts = join_parts(own.parts.take(rows), other.parts)
        scores_by_way = {how: combine(parts, how) for how in INJECTION_SCORES}
    kinds, roles = (np.concatenate([np.full(len(rows), ""), _words(events, labels, n)]) for n in ("kind", "role"))
    truth, beside = kinds != "", roles == "neighbour"
    return {
        "n": len(truth),
        "positives": int(truth.sum()),
        "scores": {how: _areas(truth, s) for how, s in scores_by_way.items()},
        "incidents": {
            "scores": {how: _areas(truth, _wide(untouched_events, events, s)) for how, s in scores_by_way.items()}
        },
        "changed": {
            "positives": int((truth & ~beside).sum()),
            "scores": {how: _areas(truth[~beside], s[~beside]) for how, s in scores_by_way.items()},
        },
        **({} if method in WHOLE_PRESETS else _without_neighbours(parts, kinds, beside)),
    }


def _inject(models: FittedModels, kind: str) -> tuple[Dataset, pa.Array]:
    """The people without labels, with one kind of injection among them, and those it was done to."""
    labelled_agents = set(models.labelled_agents)
    ordinary = [a for a in pc.unique(models.test["agent_id"]).to_pylist() if a not in labelled_agents]
    clean = replace(models.data.only(ordinary), labels=None, agent_labels=None)
    changed_data = inject(clean, kind, models.budget.injected_share, models.seed)
    if changed_data.labels is None:
        raise ValueError("an injection always labels what it changed")
    return changed_data, pc.unique(changed_data.labels["agent_id"])


def _find_untouched(models: FittedModels, events: pa.Table, changed_agents: pa.Array) -> np.ndarray:
    """Rows of the people that neither a label nor the injection is about."""
    agents = events["agent_id"]
    others = pa.array([*changed_agents.to_pylist(), *models.labelled_agents], agents.type)
    return np.flatnonzero(pc.invert(pc.is_in(agents, others)).to_numpy())


def _preset_scores(models: FittedModels, preset: str, changed_data: Dataset) -> tuple[pa.Table, pa.Table]:
    """Event scores of a preset: of the data as it is, and of the people that were changed."""
    base, new = models.preset_scores(preset).events, models.preset_detector(preset).score(changed_data).events
    if base is None or new is None:
        raise ValueError("a preset of the detector scores events")
    return base, new


def join_parts(one: Any, other: Any) -> Any:
    """Parts of two sets of events, one after the other."""
    matrices = (np.concatenate([getattr(p, m) for p in (one, other)]) for m in ("error", "loss", "au", "eu", "knn"))
    return type(one)(one.names, *matrices)


def _words(events: pa.Table, labels: pa.Table, column: str) -> np.ndarray:
    """The `kind` of injection of each event or its `role` in one, an empty word for none."""
    at = pc.index_in(events["stay_id"], labels["stay_id"].combine_chunks())
    return np.array([word or "" for word in labels[column].take(at.combine_chunks()).to_pylist()])


def _wide(untouched_events: pa.Table, changed_events: pa.Table, score: np.ndarray) -> np.ndarray:
    """The highest score of each event, the one before and the one after it, of two tables one after the other."""
    names = ["agent_id", "started_at"]
    events = pa.concat_tables(
        [untouched_events.select(names), changed_events.select(names)], promote_options="permissive"
    )
    return incident_scores(events.append_column("score", pa.array(score)))


def _areas(truth: np.ndarray, score: np.ndarray) -> dict[str, float]:
    return {"auroc": auroc(truth, score), "ap": average_precision(truth, score)}


def _without_neighbours(parts: Parts, kinds: np.ndarray, beside: np.ndarray) -> Options:
    """Boxes of changed stays and of ordinary ones; older results had the stays beside changed ones in them too."""
    boxes = _boxes(parts.take(np.flatnonzero(~beside)), kinds[~beside])
    return {"boxes": boxes, "boxes_without": "neighbours"}


def _boxes(parts: Any, kinds: np.ndarray) -> dict[str, Options]:
    """Quantiles of the loss (terms scaled to [0, 1], then averaged) and of the distance, by kind."""
    low, high = np.nanmin(parts.loss, axis=0), np.nanmax(parts.loss, axis=0)
    loss = np.nanmean((parts.loss - low) / np.where(high > low, high - low, 1.0), axis=1)
    names = [("normal", kinds == ""), *((k, kinds == k) for k in KINDS)]
    return {
        name: {"n": int(m.sum()), "loss": five_numbers(loss[m]), "knn": five_numbers(parts.knn[m])}
        for name, m in names
        if m.any()
    }


# ---------------------------------------------------------------------------------------------- epistemic
def epistemic(models: FittedModels, **_: Any) -> Options:
    """Loss against EU per term, distance of the most and least certain events, EU against distance."""
    parts = models.measure(USTAD).parts
    total = np.nansum(parts.eu.astype(np.float64), axis=1)
    is_known = np.isfinite(parts.knn)
    eu, knn = total[is_known], parts.knn[is_known].astype(np.float64)
    low, high = np.quantile(eu, [0.05, 0.95])
    slope, intercept = np.polyfit(eu, knn, 1)
    edges = np.linspace(knn.min(), np.quantile(knn, 0.999), 31)
    return {
        "terms": {name: hexagons(parts.eu[:, i], parts.loss[:, i]) for i, name in enumerate(parts.names)},
        "edges": edges.tolist(),
        "knn_high_eu": histogram(knn[eu >= high], edges),
        "knn_low_eu": histogram(knn[eu <= low], edges),
        "median_high_eu": float(np.median(knn[eu >= high])),
        "median_low_eu": float(np.median(knn[eu <= low])),
        "hexagons": hexagons(eu, knn, logarithms=False),
        "fit": {"slope": float(slope), "intercept": float(intercept)},
        "pearson": float(pearsonr(eu, knn)[0]),
        "spearman": float(spearmanr(eu, knn)[0]),
        "pearson_tail": float(pearsonr(eu[eu >= high], knn[eu >= high])[0]),
        "spearman_tail": float(spearmanr(eu[eu >= high], knn[eu >= high])[0]),
        "n": len(eu),
    }
