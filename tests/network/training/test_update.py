"""Recorded, compiled and full-batch steps do what a plain step does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_world import FIELDS
from torch import Tensor

from ustad.config import Config, TrainingConfig
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.training import loop, update
from ustad.network.training.masked_step import Stepper, capacity, draw_masks
from ustad.network.training.masked_task import MaskedTask, fit
from ustad.network.training.optimise import compile_loss, learning_rate, make_optimizer, set_rate

World = tuple[EventTensors, Windows, Queries]
Work = Callable[[], Tensor]


class FakeRecorder:
    """Records nothing but how often it was asked: replaying does the work again, on the buffers it was given."""

    asked = 0

    def __init__(self, device: torch.device) -> None:
        type(self).asked = 0

    def __call__(self, work: Work) -> Work:
        type(self).asked += 1
        return work


class BrokenRecorder(FakeRecorder):
    def __call__(self, work: Work) -> Work:
        super().__call__(work)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")


def train(world: World, config: Config, recorder: type, monkeypatch: pytest.MonkeyPatch) -> DualTransformer:
    tensors, windows, queries = world
    monkeypatch.setattr(loop, "use_graphs", lambda *_: True)
    monkeypatch.setattr(loop, "GraphRecorder", recorder)
    network = build_network(FIELDS, config)
    fit(network, tensors, windows, (tensors, queries), config=config)
    return network


def test_recorded_steps_lead_to_the_same_weights_and_a_broken_recorder_does_no_harm(
    world: World, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.replace({"training.recipe": "cosine", "training.epochs": 3})
    said: list[str] = []
    monkeypatch.setattr(update, "say", said.append)
    recorded = train(world, config, FakeRecorder, monkeypatch)
    assert FakeRecorder.asked > 1
    assert not said
    plain = train(world, config, BrokenRecorder, monkeypatch)
    assert BrokenRecorder.asked == len(said) == 1
    assert "operation not permitted" in said[0]
    assert "and more" not in said[0]
    for one, other in zip(recorded.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_empty_windows_that_fill_a_batch_change_nothing(world: World, config: Config) -> None:
    tensors, windows, _ = world
    config = config.replace({"model.uncertainty": "none"})  # nothing random is left
    network = build_network(FIELDS, config).train()
    stepper = Stepper(network, config.training, dense=True)
    start, stop = (torch.from_numpy(a[:20]) for a in (windows.start, windows.stop))
    batch = tensors.batch(start, stop, 16)
    filled = tensors.batch(*(torch.nn.functional.pad(a, (0, 12)) for a in (start, stop)), 16)
    masked = draw_masks(batch.padding, 0.3)
    with_empty = torch.nn.functional.pad(masked, (0, 0, 0, 12))
    assert not draw_masks(filled.padding, 0.3)[20:].any()
    one = stepper.dense_loss(batch, masked, capacity(20, 16, 0.3))
    other = stepper.dense_loss(filled, with_empty, capacity(32, 16, 0.3))
    torch.testing.assert_close(one.total, other.total)
    torch.testing.assert_close(one.fields, other.fields)


def test_a_compiled_loss_serves_every_window_length_and_changes_no_number(world: World, config: Config) -> None:
    tensors, windows, queries = world
    network = build_network(FIELDS, config.replace({"model.event_blocks": 3})).train()
    task = MaskedTask(network, tensors, tensors, queries, config)
    task.prepare(dense=True, is_compiled=False)
    compiled = compile_loss(task.loss_with_room, network, backend="aot_eager")
    for length in (14, 12, 15, 13):  # none of them the width, which would be taken for a constant
        fitting = np.flatnonzero(windows.length <= length)[:24]
        start, stop = (torch.from_numpy(a[fitting]) for a in (windows.start, windows.stop))
        losses, gradients = [], []
        for loss in (task.loss_with_room, compiled):
            network.zero_grad()
            torch.manual_seed(length)
            room = capacity(len(fitting), length, config.training.mask_ratio)
            with torch.compiler.set_stance("default" if length == 14 else "fail_on_recompile"):
                total, fields = loss(start, stop, length, room)
            total.backward()
            losses.append(torch.cat([total.detach()[None], fields]))
            gradients.append(torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]))
        torch.testing.assert_close(*losses)
        torch.testing.assert_close(*gradients)


def test_a_run_that_is_told_to_compile_does_and_a_recurrent_network_is_left_as_it_is(
    world: World, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda loss, **_: compiled.append(loss) or loss)
    for acceleration, times in (("off", 0), ("auto", 0), ("compile", 1)):
        tensors, windows, queries = world
        changed = config.replace({"training.acceleration": acceleration, "training.epochs": 1})
        fit(build_network(FIELDS, changed), tensors, windows, (tensors, queries), config=changed)
        assert len(compiled) == times, acceleration
    compile_loss(lambda: None, torch.nn.Sequential(torch.nn.GRU(2, 2)))
    assert len(compiled) == 1


def test_a_recorded_optimiser_reads_its_rate_where_it_lies(config: Config) -> None:
    network = build_network(FIELDS, config)
    optimizer = make_optimizer(network, config.training, for_recording=True)
    held = optimizer.param_groups[0]["lr"]
    rate = learning_rate(config.training, 5, 100) / 2
    set_rate(optimizer, rate)
    assert optimizer.param_groups[0]["lr"] is held
    assert held.item() == pytest.approx(rate)


@pytest.mark.parametrize("recorded", [False, True])
def test_each_parameter_learns_at_the_rate_of_its_gain(config: Config, recorded: bool) -> None:
    network = build_network(FIELDS, config)
    optimizer = make_optimizer(network, config.training, recorded)
    set_rate(optimizer, 0.01)
    found = {id(p): float(group["lr"]) for group in optimizer.param_groups for p in group["params"]}
    gains = network.gains()
    wanted = {id(p): 0.01 * gains.get(name, 1.0) for name, p in network.named_parameters()}
    assert found == pytest.approx(wanted)
    plain = torch.nn.Linear(3, 2)  # a network that knows of no gains
    assert len(make_optimizer(plain, config.training, recorded).param_groups) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_replayed_graphs_draw_the_masks_of_plain_steps(
    world: World, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, windows, queries = world
    from small_world import make_arrays

    tensors = EventTensors(make_arrays(), "cuda")
    config = config.replace({"training.acceleration": "off", "training.epochs": 3})
    losses = []
    for graphs in ("auto", "off"):
        monkeypatch.setattr(TrainingConfig, "graphs", graphs)
        network = build_network(FIELDS, config)
        losses.append(fit(network, tensors, windows, (tensors, queries), config=config, device="cuda").validation.total)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_training_does_without_the_compiler_whose_import_takes_seconds() -> None:
    script = """
import sys
sys.path.insert(0, sys.argv[1])
from killed_run import CONFIG, run
run(None, CONFIG.replace({"training.epochs": 1}))
print("torch._dynamo" in sys.modules)
"""
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", script, here], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class CountedTask:
    """A linear network that learns a number of each window; memory holds `most` windows at once."""

    def __init__(self, most: int) -> None:
        torch.manual_seed(0)
        self.network, self.most, self.events = torch.nn.Linear(2, 1), most, torch.zeros(1)

    def loss(self, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
        if len(start) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        real = (stop > start).float()
        ends = torch.stack([start, stop], 1).float() / 10
        values = (self.network(ends)[:, 0] - length) ** 2
        mean = (values * real).sum() / real.sum().clamp(min=1)
        return mean, mean.detach()[None]


@pytest.mark.parametrize("most", [7, 4, 3, 1])
def test_a_batch_that_memory_does_not_hold_is_learnt_from_in_pieces(
    most: int, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last two windows are empty ones that fill the batch; one piece may have no others."""
    start = torch.tensor([0, 3, 5, 2, 9, 4, 0, 0])
    stop = torch.tensor([2, 8, 9, 6, 12, 9, 0, 0])
    lines: list[str] = []
    monkeypatch.setattr(update, "say", lines.append)
    results, weights = [], []
    for limit in (100, most):
        task = CountedTask(limit)
        step = update.Update(task, torch.optim.SGD(task.network.parameters(), 0.1), config.training)
        results.append([step(start, stop, 3), step(start, stop, 3)])
        weights.append([p.detach().clone() for p in task.network.parameters()])
    for whole, pieces in zip([*results[0], *weights[0]], [*results[1], *weights[1]], strict=True):
        torch.testing.assert_close(pieces, whole, rtol=1e-5, atol=1e-6, check_dtype=False)
    assert lines[-1].startswith("training: memory is full; every batch is now computed in")
    assert len(lines) == len(set(lines)), "what is known is not tried again"


def test_where_not_even_one_window_fits_the_error_stands(config: Config) -> None:
    task = CountedTask(0)
    step = update.Update(task, torch.optim.SGD(task.network.parameters(), 0.1), config.training)
    with pytest.raises(torch.OutOfMemoryError):
        step(torch.tensor([0, 1]), torch.tensor([2, 3]), 3)
