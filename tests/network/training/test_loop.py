"""Training: it learns, it can be killed, and it says what it did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from killed_run import MOMENTS, run, step_of
from small_world import FIELDS, SMALL, make_arrays

from ustad.config import Config, ConfigError, TrainingConfig
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.losses import field_losses, weigh
from ustad.network.training import loop
from ustad.network.training.checkpoints import write_checkpoint
from ustad.network.training.masked_step import Stepper, capacity, draw_masks
from ustad.network.training.masked_task import fit
from ustad.network.training.optimise import learning_rate
from ustad.network.training.validation import choose_queries, mean_without_largest, validate
from ustad.tables import DataError

World = tuple[EventTensors, Windows, Queries]


def train(world: World, config: Config, directory: Path | None = None, resume: bool = False) -> tuple:
    tensors, windows, queries = world
    network = build_network(FIELDS, config)
    return network, fit(
        network, tensors, windows, (tensors, queries), config=config, device="cpu", directory=directory, resume=resume
    )


def same(one: DualTransformer, other: DualTransformer) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_training_learns_and_keeps_the_best_weights(world: World, config: Config) -> None:
    config = config.replace({"training.epochs": 4})
    network, result = train(world, config)
    losses = [entry["validation"] for entry in result.history]
    assert losses[-1] < losses[0] - 0.5
    assert result.best_loss == min(losses)
    again = validate(network, world[0], world[2], config)
    assert result.validation.total == pytest.approx(again.total)
    assert all(entry["padding"] < 0.15 for entry in result.history)


def test_the_same_seed_gives_the_same_weights_and_another_does_not(world: World, config: Config) -> None:
    torch.manual_seed(99)
    one = train(world, config)[0]
    torch.manual_seed(1)
    assert same(one, train(world, config)[0])
    assert not same(one, train(world, config.replace({"seed": 8}))[0])


def test_training_leaves_the_callers_generator_alone(world: World, config: Config) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train(world, config.replace({"training.epochs": 1}))
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("stop_after", [1, 3, 4, 6])
def test_a_run_stopped_at_any_step_resumes_to_the_same_weights(
    world: World, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    monkeypatch.setattr(TrainingConfig, "checkpoint_minutes", 0.0)
    whole, truth = train(world, config)
    written = []

    def write_then_die(*arguments: object, **named: object) -> None:
        write_checkpoint(*arguments, **named)  # type: ignore[arg-type]  # handed on as they came
        written.append(1)
        if len(written) == stop_after:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "write_checkpoint", write_then_die)
    with pytest.raises(KeyboardInterrupt):
        train(world, config, tmp_path)
    monkeypatch.setattr(loop, "write_checkpoint", write_checkpoint)
    resumed, result = train(world, config, tmp_path, resume=True)
    assert same(whole, resumed)
    timing = ("windows_per_s", "epoch_seconds", "seconds")
    kept = [[{k: v for k, v in e.items() if k not in timing} for e in r.history] for r in (truth, result)]
    assert kept[0] == kept[1]
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == len(truth.history)


def test_a_process_killed_at_any_moment_resumes_to_the_weights_of_one_that_never_was(tmp_path: Path) -> None:
    script = Path(__file__).parent / "killed_run.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, check=True, timeout=600
    )
    steps = json.loads(done.stdout)
    assert len(steps) == len(MOMENTS)
    assert steps[0] >= 1
    assert all(before <= after for before, after in pairwise(steps))
    resumed, whole = run(tmp_path), run(None)
    assert len({*steps}) >= 4
    assert steps[-1] < step_of(tmp_path / loop.CHECKPOINT)  # the last of them was killed before the end
    assert same(whole, resumed)


def test_a_finished_run_resumes_to_itself_without_a_step(world: World, config: Config, tmp_path: Path) -> None:
    network, result = train(world, config, tmp_path)
    again, repeated = train(world, config, tmp_path, resume=True)
    assert same(network, again)
    assert repeated.steps == result.steps
    assert repeated.stopped == result.stopped == "epochs"


def test_a_checkpoint_of_other_settings_or_a_broken_one_is_refused(
    world: World, config: Config, tmp_path: Path
) -> None:
    train(world, config, tmp_path)
    with pytest.raises(ConfigError, match="other settings or other data"):
        train(world, config.replace({"training.mask_ratio": 0.3}), tmp_path, resume=True)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"half a file")
    with pytest.raises(ConfigError, match="not a readable checkpoint"):
        train(world, config, tmp_path, resume=True)


def test_training_stops_when_validation_no_longer_improves(world: World, config: Config) -> None:
    config = config.replace({"training.epochs": 50, "training.patience": 2, "training.learning_rate": 1e-30})
    result = train(world, config)[1]
    assert result.stopped == "patience"
    assert (result.best_epoch, result.epochs) == (0, 3)


def test_training_stops_when_time_is_up(world: World, config: Config, tmp_path: Path) -> None:
    config = config.replace({"training.epochs": 10_000, "training.max_minutes": 0.005})
    result = train(world, config, tmp_path)[1]
    assert result.stopped == "time"
    assert np.isfinite(result.validation.total)


def test_the_live_line_says_loss_throughput_and_time_left(
    world: World, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    @contextmanager
    def follow(label: str, total: float | None = None) -> Iterator[Callable[..., None]]:
        yield lambda n=1, note="": lines.append(note)

    monkeypatch.setattr(loop, "track", follow)
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_NOTES", 0.0)
    train(world, config)
    assert re.fullmatch(
        r"epoch 2, loss \d+\.\d+, validation \d+\.\d+, [\d,]+ windows/s, at most a few seconds left", lines[-1]
    )


def test_nothing_to_learn_from_or_to_validate_on_is_an_error(world: World, config: Config) -> None:
    tensors, windows, queries = world
    none = np.zeros(0, np.int64)
    with pytest.raises(DataError, match="no window to learn from"):
        train((tensors, windows.take(none), queries), config)
    with pytest.raises(DataError, match="no event to validate on"):
        train((tensors, windows, queries.take(none)), config)


def test_packed_and_dense_steps_compute_the_same_loss_and_gradients(world: World, config: Config) -> None:
    tensors, windows, _ = world
    config = config.replace({"model.uncertainty": "none"})  # nothing random is left
    network = build_network(FIELDS, config).train()
    rows = torch.arange(20)
    start, stop = (torch.from_numpy(a)[rows] for a in (windows.start, windows.stop))
    batch = tensors.batch(start, stop, 16)
    masked = draw_masks(batch.padding, 0.3)
    stepper = Stepper(network, config.training, dense=True)
    found = []
    for loss in (stepper.dense_loss(batch, masked, capacity(20, 16, 0.3)), stepper.packed_loss(batch, masked)):
        network.zero_grad()
        loss.total.backward()
        found.append((loss.total, loss.fields, network.tokenizer.weight.grad.clone(), network.position.weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_weights_of_one_change_no_bit_of_a_loss_and_others_weigh_their_fields(world: World, config: Config) -> None:
    _, windows, queries = world
    config = config.replace({"model.uncertainty": "none"})
    network = build_network(FIELDS, config).eval()
    arrays = make_arrays()
    start, stop = (torch.from_numpy(a)[:20] for a in (windows.start, windows.stop))
    totals, parts, asked = [], [], []
    for weight in (None, 1.0, 0.5, 0.0):
        given = None if weight is None else np.ones(arrays.missing.shape, np.float32)
        if given is not None:
            given[:, 2] = weight  # the duration's
        tensors = EventTensors(replace(arrays, weight=given))
        batch = tensors.batch(start, stop, 16)
        torch.manual_seed(5)
        masked = draw_masks(batch.padding, 0.3)
        stepper = Stepper(network, config.training, dense=False)
        loss = stepper.packed_loss(batch, masked)
        torch.testing.assert_close(loss.total, stepper.dense_loss(batch, masked, capacity(20, 16, 0.3)).total)
        totals.append(float(loss.total.detach()))
        parts.append(float(loss.fields[2].detach()))
        asked.append(validate(network, tensors, queries, config))
    assert totals[1] == totals[0]
    assert asked[1] == asked[0]
    assert parts == [parts[0]] * 4, "what is logged of a field is its own loss"
    for whole, own in ((totals, parts[0]), ([a.total for a in asked], asked[0].fields["duration"])):
        assert whole[2] == pytest.approx(whole[0] - 0.5 * own, rel=1e-5)
        assert whole[3] == pytest.approx(whole[0] - own, rel=1e-5)


def test_validation_equals_asking_one_event_at_a_time(world: World, config: Config) -> None:
    tensors, _, queries = world
    config = config.replace({"model.uncertainty": "epistemic"})
    network = build_network(FIELDS, config).eval()
    total = 0.0
    for start, stop, target in zip(queries.start, queries.stop, queries.target, strict=True):
        batch = tensors.batch(torch.tensor([start]), torch.tensor([stop]), int(stop - start))
        masked = batch.position == target - start
        with torch.no_grad():
            predictions = network(batch, masked).map(lambda part, masked=masked: part[masked])  # type: ignore[misc]  # bound here
        losses = field_losses(predictions, batch.features[masked], FIELDS, config.training)
        total += weigh(losses, FIELDS, config.training).item()
    assert validate(network, tensors, queries, config).total == pytest.approx(total / len(queries), rel=1e-5)


def test_a_single_event_does_not_decide_validation_where_variances_are_predicted(config: Config) -> None:
    arrays = make_arrays(agents=40)
    odd = replace(arrays, numbers=arrays.numbers.copy())
    last = int(np.flatnonzero(arrays.entity == 0)[-1])  # the last of its agent: no other question sees it
    odd.numbers[last, 2] = 1e4
    target = np.arange(len(arrays.entity))
    first = np.searchsorted(arrays.entity, arrays.entity)
    queries = Queries(np.maximum(first, target - 3), target + 1, target)
    assert len(queries) > 200
    for uncertainty, is_moved in (("both", False), ("none", True)):
        changed = config.replace({"model.uncertainty": uncertainty})
        network = build_network(FIELDS, changed)
        plain, with_odd = (validate(network, EventTensors(a), queries, changed) for a in (arrays, odd))
        assert (with_odd.total > plain.total + 1) == is_moved
        assert with_odd.fields["duration"] > plain.fields["duration"] + 1
        assert (with_odd.without_weights > plain.without_weights + 1) == is_moved


def test_the_loss_without_weights_is_the_same_under_every_weight(world: World, config: Config) -> None:
    tensors, _, queries = world
    config = config.replace({"model.uncertainty": "epistemic"})
    network = build_network(FIELDS, config)
    one, five = (
        validate(network, tensors, queries, config.replace({"training.category_weight": w})) for w in (1.0, 5.0)
    )
    assert one.without_weights == one.total == five.without_weights
    categories = sum(
        loss for name, loss in one.fields.items() if name in {f.name for f in FIELDS if f.kind == "category"}
    )
    assert five.total > five.without_weights
    assert categories > 0


def test_the_mean_without_the_largest_is_that_of_the_sorted_rest() -> None:
    losses = torch.tensor([5.0, 1.0, 900.0, 2.0, 4.0, 3.0, 0.0, 6.0, 7.0, 8.0])
    assert mean_without_largest(losses, 0.0) == pytest.approx(float(losses.mean()))
    assert mean_without_largest(losses, 0.1) == 4.0
    assert mean_without_largest(losses, 0.09) == pytest.approx(float(losses.mean()))  # of few none is left out
    assert np.isnan(mean_without_largest(torch.tensor([1.0] * 99 + [np.inf]), 0.01))


def test_a_fixed_share_of_the_agents_is_asked(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ustad.network.training.validation.FEWEST_QUERIES", 10)
    entity = np.repeat(np.arange(100), 5)
    queries = Queries(*(np.arange(500) for _ in range(3)))
    chosen = choose_queries(queries, entity, 0.1, 7)
    agents, counts = np.unique(entity[chosen.target], return_counts=True)
    assert len(agents) == 10
    assert (counts == 5).all()
    assert np.array_equal(chosen.target, choose_queries(queries, entity, 0.1, 7).target)


def test_learning_rates_warm_up_and_fall() -> None:
    config = Config.preset("best", **{"training.learning_rate": 1.0}).training
    rates = [learning_rate(config, step, 1000) for step in range(1000)]
    assert rates[:100] == sorted(rates[:100])
    assert max(rates) == rates[100] == 1.0
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert 0 < rates[-1] < 0.01


def test_the_log_has_the_validation_of_every_field(world: World, config: Config, tmp_path: Path) -> None:
    tensors, windows, queries = world
    config = config.replace({"training.epochs": 1})
    fit(
        build_network(FIELDS, config),
        tensors,
        windows,
        (tensors, queries),
        config=config,
        device="cpu",
        directory=tmp_path,
    )
    entry = json.loads((tmp_path / "log.jsonl").read_text())
    assert set(entry["validation_fields"]) == {f.name for f in FIELDS}


def test_training_carries_on_from_a_trained_network(world: World, config: Config) -> None:
    tensors, windows, queries = world
    network, first = train(world, config)
    second = fit(network, tensors, windows, (tensors, queries), config=config)
    assert second.history[0]["validation"] < first.history[0]["validation"]
    assert SMALL["training.epochs"] == len(second.history)
