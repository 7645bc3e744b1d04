"""The network against plain arithmetic, and what must never change a prediction."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_batches import FIELDS, make_batch, make_features
from torch import Tensor

from ustad.config import Config, ModelConfig, TrainingConfig
from ustad.events.windows import Batch, Features
from ustad.network.blocks import Block
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.heads import Predictions
from ustad.network.losses import masked_loss
from ustad.schema import Field


class TwoBlocks(ModelConfig):
    """A feature level of two blocks."""

    feature_blocks = 2


SMALL = TwoBlocks(width=8, heads=2, event_blocks=2)


def network(fields: tuple[Field, ...] = FIELDS, **changes: object) -> DualTransformer:
    return DualTransformer(fields, dataclasses.replace(SMALL, **changes), max_events=6).eval()  # type: ignore[arg-type]  # settings of any kind


def parts(predictions: Predictions) -> list[Tensor]:
    p = predictions
    return [p.mean, p.log_variance, *p.logits, *p.log_sigma, *p.vectors, *p.vector_log_variance]


def norm_by_hand(row: Tensor, layer: torch.nn.LayerNorm) -> Tensor:
    centred = row - row.mean()
    return centred / torch.sqrt((centred**2).mean() + layer.eps) * layer.weight + layer.bias


def block_by_hand(block: Block, x: Tensor, visible: Tensor) -> Tensor:
    """One sequence [L, D], token by token, head by head."""
    L, D = x.shape
    H = block.attention.heads
    d = D // H
    qkv = torch.stack([block.attention.qkv(norm_by_hand(row, block.norm_attention)) for row in x])
    mixed = torch.zeros(L, D, dtype=x.dtype)
    for h in range(H):
        q, k, v = (qkv[:, part * D + h * d : part * D + (h + 1) * d] for part in range(3))
        for i in range(L):
            powers = [math.exp(float(q[i] @ k[j]) / math.sqrt(d)) if visible[j] else 0.0 for j in range(L)]
            mixed[i, h * d : (h + 1) * d] = sum(p / sum(powers) * v[j] for j, p in enumerate(powers))
    x = x + block.attention.out(mixed)
    inner = torch.stack([block.forward_in(norm_by_hand(row, block.norm_forward)) for row in x])
    gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return x + block.forward_out(gelu)


def network_by_hand(net: DualTransformer, features: Features, masked: Tensor, position: Tensor, day: Tensor) -> Tensor:
    """One window without padding, the paper's figure from bottom to top: [L, D]."""
    tokenizer, events = net.tokenizer, []
    for i in range(len(masked)):
        tokens = [tokenizer.bias[j] + features.numbers[i, j] * tokenizer.weight[j] for j in range(2)]
        tokens += [tokenizer.table[features.categories[i, 0]], tokenizer.table[5 + features.categories[i, 1]]]
        tokens += [tokenizer.vectors[0](features.vectors[i])]
        tokens = [tokenizer.missing[f] if features.missing[i, f] else t for f, t in enumerate(tokens)]
        x = torch.stack(tokens)
        for block in net.feature_blocks:
            x = block_by_hand(block, x, torch.ones(len(x)))  # type: ignore[arg-type]  # a Block
        events.append(net.masked_token if masked[i] else x.sum(dim=0))
    x = torch.stack(events) + net.position.weight[position] + net.day_position.weight[day]
    for block in net.event_blocks:
        x = block_by_hand(block, x, torch.ones(len(x)))  # type: ignore[arg-type]  # a Block
    return torch.stack([norm_by_hand(row, net.norm) for row in x])


@torch.no_grad()
def test_the_network_is_the_papers_figure_written_out() -> None:
    net, batch = network().double(), make_batch((4,), dtype=torch.float64)
    masked = torch.tensor([[False, True, False, False]])
    hidden = net.contextualise(
        net.embed(batch.features), masked, batch.padding, batch.position, day_position=batch.day_position
    )
    one = batch.features[torch.tensor(0)]
    truth = network_by_hand(net, one, masked[0], batch.position[0], batch.day_position[0])
    torch.testing.assert_close(hidden[0], truth, rtol=1e-9, atol=1e-9)


def test_gradients_through_the_whole_network_are_right() -> None:
    net, batch = network(width=4).double(), make_batch((3, 2), dtype=torch.float64)
    masked = torch.tensor([[True, False, False], [False, True, False]])

    def loss(numbers: Tensor, vectors: Tensor) -> Tensor:
        features = dataclasses.replace(batch.features, numbers=numbers, vectors=vectors)
        generator = torch.Generator().manual_seed(0)
        predictions = net(dataclasses.replace(batch, features=features), masked)
        return masked_loss(
            predictions, batch.features, masked, FIELDS, config=TrainingConfig(), generator=generator
        ).total

    inputs = (batch.features.numbers.requires_grad_(), batch.features.vectors.requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs, atol=1e-6)


@torch.no_grad()
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(0, 9), st.integers(0, 2**31))
def test_padding_never_changes_a_prediction(length: int, extra: int, seed: int) -> None:
    torch.manual_seed(seed)
    net, batch = network(), make_batch((length, length + extra))
    masked = torch.zeros_like(batch.padding)
    masked[0, 0] = True
    padded = net(batch, masked)
    tight = Batch(
        batch.features[torch.tensor([0])],
        *(t[:1] for t in (batch.padding, batch.position, batch.day_position, batch.index)),
    )
    tight = Batch(
        Features(*(getattr(tight.features, f.name)[:, :length] for f in dataclasses.fields(Features))),
        *(t[:, :length] for t in (tight.padding, tight.position, tight.day_position, tight.index)),
    )
    for one, other in zip(parts(padded), parts(net(tight, masked[:1, :length])), strict=True):
        torch.testing.assert_close(one[:1, :length], other, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_masked_event_does_not_leak_into_its_own_prediction(batch: Batch) -> None:
    net = network()
    masked = torch.zeros_like(batch.padding)
    masked[:, 0] = True
    before = net(batch, masked)
    batch.features.numbers[:, 0] += 100
    batch.features.categories[:, 0] = 1
    after = net(batch, masked)
    for one, other in zip(parts(before), parts(after), strict=True):
        assert torch.equal(one, other)


@torch.no_grad()
def test_asking_for_some_events_equals_asking_for_all(batch: Batch) -> None:
    net = network()
    masked = torch.zeros_like(batch.padding)
    masked[:, 0] = True
    windows = net.embed(batch.features), masked, batch.padding, batch.position
    days = batch.day_position
    every = net.contextualise(*windows, day_position=days)
    at = torch.tensor([4, 1, 0])
    torch.testing.assert_close(net.contextualise_at(*windows, day_position=days, at=at), every[torch.arange(3), at])
    flat = torch.tensor([2, 5, 5, 14])
    torch.testing.assert_close(
        net.contextualise_where(*windows, day_position=days, flat=flat), every.reshape(15, -1)[flat]
    )


@torch.no_grad()
def test_adding_fields_up_before_the_last_map_changes_nothing() -> None:
    block, x = Block(8, 2).double(), torch.randn(5, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(block.total(x), block(x).sum(dim=1), rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_dropout_is_what_the_caller_gives_and_is_off_in_evaluation() -> None:
    net, features = network(), make_features(FIELDS, 4)
    keep = (torch.rand(4, 5, 8) > 0.3) / 0.7
    assert torch.equal(net.embed(features), net.embed(features, torch.ones(4, 5, 8)))
    assert not torch.allclose(net.embed(features), net.embed(features, keep))
    assert torch.equal(net.embed(features, keep), net.embed(features, keep))


@torch.no_grad()
@pytest.mark.parametrize("uncertainty", ["both", "aleatoric", "epistemic", "none"])
def test_each_uncertainty_can_be_switched_off(batch: Batch, uncertainty: str) -> None:
    net = network(uncertainty=uncertainty).train()
    aleatoric, epistemic = (uncertainty in ("both", kind) for kind in ("aleatoric", "epistemic"))
    first, second = net(batch, batch.padding), net(batch, batch.padding)
    assert torch.equal(first.mean, second.mean) != epistemic
    assert bool(first.log_sigma) == aleatoric
    assert bool((first.log_variance != 0).any()) == aleatoric
    assert bool((first.vector_log_variance[0] != 0).any()) == aleatoric


@torch.no_grad()
def test_unknown_is_never_predicted_and_missing_has_its_own_token(batch: Batch) -> None:
    net = network()
    chances = net(batch, batch.padding).logits[0].softmax(dim=-1)
    assert (chances[..., 0] == 0).all()
    before = net.embed(batch.features)
    batch.features.numbers[batch.features.missing[..., :2]] = 1e4  # what stands there when missing is not looked at
    assert torch.equal(net.embed(batch.features), before)


ODD_FIELDS = {
    "one number": (Field("x", "number"),),
    "one category of one word": (Field("c", "category", 2),),
    "one category without words": (Field("x", "number"), Field("c", "category", 1)),
    "one vector": (Field("v", "vector", 2),),
}


@pytest.mark.parametrize("fields", ODD_FIELDS.values(), ids=ODD_FIELDS.keys())
@pytest.mark.parametrize("lengths", [(1,), (0, 0), (0, 3)])
def test_odd_batches_give_finite_losses_and_gradients(fields: tuple[Field, ...], lengths: tuple[int, ...]) -> None:
    net, batch = network(fields).train(), make_batch(lengths, fields)
    masked = ~batch.padding
    loss = masked_loss(net(batch, masked), batch.features, masked, fields, config=TrainingConfig())
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert torch.isfinite(loss.fields).all()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("value", [0.0, 1e4, -1e4])
def test_constant_and_extreme_values_give_finite_losses_and_gradients(batch: Batch, value: float) -> None:
    net = network().train()
    batch.features.numbers[:] = value
    batch.features.vectors[:] = value
    masked = ~batch.padding
    loss = masked_loss(net(batch, masked), batch.features, masked, FIELDS, config=TrainingConfig())
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_the_heads_answer_in_fp32_whatever_the_blocks_run_in(batch: Batch) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        predictions = network()(batch, batch.padding)
    assert {t.dtype for t in parts(predictions)} == {torch.float32}


def test_a_new_network_follows_from_the_seed_and_leaves_the_generator_alone() -> None:
    config = Config.preset("quick")
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = build_network(FIELDS, config), build_network(FIELDS, config)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    other = build_network(FIELDS, config.replace({"seed": 8}))
    assert not torch.equal(first.tokenizer.weight, other.tokenizer.weight)


@pytest.mark.parametrize("width", [16, 64])
@torch.no_grad()
def test_a_new_network_sees_the_order_of_events(width: int) -> None:
    torch.manual_seed(width)
    net, batch = network(width=width, heads=4), make_batch((6,) * 64)
    masked = torch.zeros_like(batch.padding)
    masked[:, 2] = True
    events = net.embed(batch.features)

    def seen(events: Tensor) -> Tensor:
        return net.contextualise(events, masked, batch.padding, batch.position, day_position=batch.day_position)[:, 2]

    otherwise = seen(events[:, [4, 0, 2, 5, 1, 3]]) - seen(events)
    others = seen(events.roll(1, dims=0)) - seen(events)
    assert otherwise.norm() > 0.1 * others.norm()  # other events change everything, another order a good part of it


@pytest.mark.parametrize("width", [16, 64])
@torch.no_grad()
def test_fields_and_positions_of_a_new_network_are_equally_loud(width: int) -> None:
    torch.manual_seed(width)
    net, batch = network(width=width, heads=4), make_batch((6,) * 64)
    fields = net.tokenizer(batch.features).std(dim=(0, 1, 3))  # [F]
    assert fields.max() < 3 * fields.min()
    places = net.position(batch.position) + net.day_position(batch.day_position)
    assert 0.4 < places.std() / net.embed(batch.features).std() < 2.5


def test_only_embeddings_learn_faster_than_the_rest() -> None:
    net = network(width=16)
    gains = net.gains()
    rest = {name for name, _ in net.named_parameters()} - set(gains)
    assert set(gains) <= set(net.state_dict())
    assert {name.split(".")[0] for name in rest} == {"tokenizer", "feature_blocks", "event_blocks", "norm", "heads"}
    assert {name for name in rest if name.startswith("tokenizer")} == {
        "tokenizer.vectors.0.weight",
        "tokenizer.vectors.0.bias",
    }
    assert set(gains.values()) == {4.0}
