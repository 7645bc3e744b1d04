"""The preset `paper` is what the page about the method says it is, setting by setting and departure by departure."""

import re
from collections.abc import Iterable
from functools import cache
from itertools import takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from ustad.config import Config, describe_settings
from ustad.config.setting_fields import flatten
from ustad.events.encoder import Encoder
from ustad.events.windows import EventTensors, make_queries, make_windows
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.heads import LOG_VARIANCE
from ustad.network.inference import sampling
from ustad.network.inference.neighbours import APPROXIMATE_ABOVE, EXACT_LIMIT
from ustad.network.inference.paper_network import PaperNetwork, sample_queries
from ustad.network.inference.sampling import embed_events, passes_for, sample
from ustad.network.training.masked_step import Stepper
from ustad.network.training.optimise import use_bf16
from ustad.network.training.validation import validate
from ustad.paper_fitting import make_causal
from ustad.schema import Feature, mobility_schema
from ustad.scoring.paper_judge import PaperJudge
from ustad.tables import TIMESTAMP

PAGE = Path(__file__).parents[2] / "docs" / "method.md"
#: What the paper prints for the settings of its network, or the values that it searches.
PRINTED = {
    "window.unit": {"days"}, "window.length": {3}, "window.mode": {"day"},
    "model.dropout": {0.05}, "model.uncertainty": {"both"}, "model.width": {32, 64, 128},
    "model.event_blocks": {3, 4, 5}, "model.trips": {"embedding"},
    "training.recipe": {"paper"}, "training.learning_rate": {1e-3}, "training.batch_size": {128},
    "training.mask_ratio": {0.05, 0.1, 0.15, 0.2, 0.3}, "training.category_weight": {1.0},
    "scoring.samples": {50}, "scoring.neighbours": {150}, "scoring.knn_scope": {"all"},
    "scoring.percentiles": {"batch"},
}  # fmt: skip
#: A setting of the network that the preset's windows have no use for.
UNUSED = {"window.session_minutes"}
OF_NETWORK = {row["name"] for row in describe_settings() if "dual" in (row["networks"] or ())} - UNUSED


def table(heading: str) -> list[list[str]]:
    """Rows of the table whose first line is `heading`, cell by cell."""
    lines = PAGE.read_text().splitlines()
    rows = takewhile(lambda line: line.startswith("|"), lines[lines.index(heading) + 2 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_names_every_setting_of_the_preset_that_is_as_printed_with_its_value():
    preset = dict(flatten(Config.preset("paper").to_dict()))
    rows = {name.strip("`"): value for name, value, _ in table("| setting | preset | the paper |")}
    assert rows == {name: str(preset[name]) for name in PRINTED}


@cache
def departures() -> dict[str, str]:
    """What stands under "here", by point."""
    return {point: here for point, _, here, _ in table("| point | paper | here | why |")}


def find_unlisted(preset: dict[str, object], texts: Iterable[str]) -> set[str]:
    """Settings of the network that are not as printed, and that no row of departures names with their value."""
    named = set(re.findall(r"`((?:window|model|training|scoring)[.]\w+): ([^`]+)`", " ".join(texts)))
    return {
        name
        for name in OF_NETWORK
        if preset[name] not in PRINTED.get(name, set()) and (name, str(preset[name])) not in named
    }


def test_every_setting_that_is_not_as_printed_is_named_in_a_row_of_departures():
    assert find_unlisted(dict(flatten(Config.preset("paper").to_dict())), departures().values()) == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [("model.dropout", 0.1), ("training.mask_ratio", 0.5), ("model.heads", 2), ("scoring.knn_target", "visible")],
)
def test_a_setting_that_departs_without_a_row_is_noticed(name, value):
    preset = dict(flatten(Config.preset("paper", **{name: value}).to_dict()))
    assert find_unlisted(preset, departures().values()) == {name}


def test_a_row_that_is_taken_out_is_noticed():
    rows = {point: here for point, here in departures().items() if point != "embedding for the neighbours"}
    assert find_unlisted(dict(flatten(Config.preset("paper").to_dict())), rows.values()) == {"scoring.knn_target"}


def test_every_point_of_the_text_that_is_not_as_printed_is_a_row_of_departures():
    assert {
        "scale of numbers", "rate after the start", "x, y", "trip vectors in the loss", "small points",
        "early stopping", "validation", "learning rate of embeddings", "gradient clipping", "masks and mask token",
    } <= set(departures())  # fmt: skip
    assert re.search(r"atan2\(mean ŷ, mean x̂\)", PAGE.read_text())


def test_the_day_of_the_week_is_no_departure_because_it_is_predicted_and_scored_as_printed():
    assert "day of the week" not in departures()
    assert "Day of the week is in F_c" in PAGE.read_text()
    assert [feature.scored for feature in mobility_schema().features if feature.name == "weekday"] == [True]


# ---------------------------------------------------------------- departures that the code itself is asked about
SMALL = {
    "model.width": 8, "model.heads": 2, "model.event_blocks": 2, "model.trips": "none", "scoring.samples": 3,
    "scoring.neighbours": 2, "training.acceleration": "auto",
}  # fmt: skip


@pytest.fixture(scope="module")
def week(town) -> pa.Table:
    return town.events.slice(0, 120)


def make_source(week: pa.Table, **changes: object) -> PaperNetwork:
    """The preset on a small network with its first weights, which dropout has no part in."""
    config = Config.preset("paper", **{**SMALL, **changes})
    encoder = Encoder.fit(week, mobility_schema(), config.model.scaling)
    return PaperNetwork(build_network(encoder.fields, config).eval(), encoder, config, None)


def ask(source: PaperNetwork, week: pa.Table):
    arrays = source.encoder.encode(week)
    window = source.config.window
    return arrays, make_queries(arrays, make_windows(arrays, window), window)


def test_dropout_moves_samples_but_neither_the_neighbours_nor_validation(week):
    embeddings, samples, losses = [], [], []
    for rate in (0.05, 0.5):
        source = make_source(week, **{"model.dropout": rate})
        arrays, queries = ask(source, week)
        tensors = EventTensors(arrays)
        embeddings.append(embed_events(source.network.train(), tensors, queries, visible=False))
        samples.append(sample(source.network, tensors, queries, source.encoder, samples=3, seed=7).matrix("eu"))
        losses.append(validate(source.network.train(), tensors, queries, source.config).total)
    np.testing.assert_array_equal(*embeddings)
    assert losses[0] == losses[1]
    assert np.abs(samples[0] - samples[1]).max() > 1e-6
    assert "without dropout" in departures()["embedding for the neighbours"]
    assert "without dropout" in departures()["validation"]


def precisions(network: DualTransformer, device: str) -> set[torch.dtype]:
    """What the maps of all blocks compute in when such a device scores."""
    passes = passes_for(network, torch.device(device))
    blocks = (*passes.feature_blocks, *passes.event_blocks)
    assert len(blocks) == 3
    return {linear.weight.dtype for b in blocks for linear in (b.qkv, b.query, b.key_value, b.out, b.up, b.down)}


def test_blocks_on_a_gpu_train_in_bf16_and_score_in_fp16_and_heads_are_fp32(week, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    source = make_source(week)
    assert use_bf16(source.config.training, torch.device("cuda"))
    assert precisions(source.network, "cuda") == {torch.float16}
    assert precisions(source.network, "cpu") == {torch.float32}
    assert source.network.decode(torch.zeros(1, 8, dtype=torch.float16)).mean.dtype == torch.float32
    row = departures()["precision"]
    assert "blocks train in bf16 and score in fp16" in row
    assert "heads, losses, validation and embeddings for neighbours are fp32" in row


def test_embeddings_for_the_neighbours_are_fp32_and_what_overflows_is_sampled_again_so(week, monkeypatch):
    source = make_source(week)
    arrays, queries = ask(source, week)
    tensors, asked, plain = EventTensors(arrays), [], sampling.passes_for

    def passes(network, device, precision="auto"):
        asked.append(precision)
        return plain(network, device, "fp32")

    monkeypatch.setattr(sampling, "passes_for", passes)
    embed_events(source.network, tensors, queries, visible=False)
    assert set(asked) == {"fp32"}
    asked.clear()
    with torch.no_grad():
        source.network.masked_token.fill_(torch.inf)
    sample(source.network, tensors, queries, source.encoder, samples=2, seed=7)
    assert list(dict.fromkeys(asked)) == ["auto", "fp32"]
    assert "are fp32, and scoring again where it overflows" in departures()["precision"]


def test_losses_of_starts_and_lengths_that_nobody_observed_are_smaller_than_of_others(week):
    source, losses = make_source(week), []
    gaps = pa.array(np.full(len(week), 3600.0))
    for name in ("start_gap_s", "end_gap_s"):
        week = week.drop_columns([name]) if name in week.column_names else week
    for events in (week, week.append_column("start_gap_s", gaps).append_column("end_gap_s", gaps)):
        samples, _ = sample_queries(source, *ask(source, events))
        losses.append({name: term.loss for name, term in samples.terms.items()})
    for name, loss in losses[0].items():
        if name in ("start", "duration"):
            assert (losses[1][name] <= loss).all()
            assert (losses[1][name] < loss).any()
        else:
            np.testing.assert_array_equal(losses[1][name], loss)
    assert "`start_gap_s`" in departures()["starts and lengths that nobody observed"]


def test_a_step_of_training_is_one_pass_and_its_loss_has_as_many_draws_as_scoring_has_samples(week):
    source, passes = make_source(week), []
    source.network.norm.register_forward_hook(lambda *_: passes.append(1))
    arrays = source.encoder.encode(week)
    windows, tensors = make_windows(arrays, source.config.window), EventTensors(arrays)
    start, stop = (torch.from_numpy(ends[:4]) for ends in (windows.start, windows.stop))
    batch = tensors.batch(start, stop, int((stop - start).max()))
    Stepper(source.network, source.config.training, dense=False)(batch, 64)
    assert passes == [1]
    assert source.config.training.noise_samples == Config.preset("paper").scoring.samples
    assert departures()["T in the training loss"].startswith("one pass, T draws")


def test_a_live_score_sees_nothing_later_and_is_not_ranked(week):
    calibration = object()
    judge = PaperJudge(make_source(week), calibration, by_rank=True)
    live = make_causal(judge)
    assert (live.source.config.window.mode, live.by_rank, live.calibration) == ("past", False, calibration)
    assert departures()["live scores"] == "windows end with the event; percentiles of the calibrating week"


def count_later_events(config: Config, stays: int = 40) -> int:
    """How many later events of its day a scored event sees at most, on one day of so many stays."""
    start = np.datetime64("2024-01-01", "us") + np.arange(stays) * np.timedelta64(30, "m")
    columns = {name: np.zeros(stays) for name in ("lat", "lon")}
    words = {"poi_category": ["home"] * stays, "timezone": ["UTC"] * stays, "agent_id": ["a"] * stays}
    times = {"started_at": start, "finished_at": start + np.timedelta64(20, "m")}
    day = pa.table({**columns, **words, **{name: pa.array(value, TIMESTAMP) for name, value in times.items()}})
    arrays = Encoder.fit(day, mobility_schema()).encode(day)
    queries = make_queries(arrays, make_windows(arrays, config.window), config.window)
    return int((queries.stop - queries.target).max()) - 1


def test_numbers_in_the_table_of_departures_are_those_of_the_code():
    config, here = Config.preset("paper"), departures()
    limits = (
        f"{EXACT_LIMIT['cpu'] // 10**6} million",
        f"live {APPROXIMATE_ABOVE:,}",
        f"{EXACT_LIMIT['cuda'] // 10**6} million",
    )
    assert all(words in here["search for neighbours"] for words in limits)
    assert config.extraction.join
    assert f"within {config.extraction.distance_m:.0f} m" in here["stays from GPS"]
    assert f"two of {config.model.trip_size}," in here["trip vectors"]
    assert f"{Feature.max_categories:,} most frequent" in here["`unknown` category"]
    assert f"at most {config.window.max_events} events" in here["long windows"]
    assert f"at most {count_later_events(config)} later ones of its day" in here["long windows"]
    assert f"kept within [−{-LOG_VARIANCE[0]:.0f}, {LOG_VARIANCE[1]:.0f}]" in here["log-variance"]
    assert f"e⁻⁹ = {np.exp(LOG_VARIANCE[0]) * 1e4:.2f}e-4" in PAGE.read_text()
    assert f"norm {config.training.clip_norm:.0f}" in here["gradient clipping"]
