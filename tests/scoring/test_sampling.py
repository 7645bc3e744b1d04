"""Sampling against slow, obvious versions: one event, one sample, one pass of the whole network at a time."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from ustad.config import Config
from ustad.events.encoder import Encoder, EventArrays
from ustad.events.windows import EventTensors, Features, Queries, make_queries, make_windows
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference import sampling
from ustad.network.inference.counter import keep_masks, normal_noise
from ustad.network.inference.passes import normalise_rows
from ustad.network.inference.sampling import Budget, Samples, embed_events, sample

T = 5
SEED = 3
COLUMNS = ("expected", "error", "loss", "au", "eu")


@pytest.fixture(scope="module")
def arrays(encoder: Encoder, stays: pa.Table) -> EventArrays:
    return encoder.encode(stays.slice(0, 100))


@pytest.fixture(scope="module")
def queries(arrays: EventArrays, config: Config) -> Queries:
    return make_queries(arrays, make_windows(arrays, config.window), config.window).take(np.arange(30, 70))


@pytest.fixture(scope="module")
def samples(network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder) -> Samples:
    return sample(network, EventTensors(arrays), queries, encoder, samples=T, seed=SEED)


def _close(a: Samples, b: Samples, rel: float = 1e-4, absolute: float = 1e-5) -> None:
    for name in a.terms:
        for column in COLUMNS:
            x, y = getattr(a.terms[name], column), getattr(b.terms[name], column)
            np.testing.assert_allclose(x, y, rtol=rel, atol=absolute, err_msg=f"{name} {column}")


def _slow_predictions(
    network: DualTransformer, tensors: EventTensors, query: tuple[int, int, int]
) -> list[dict[str, np.ndarray]]:
    """The plain way: for each t embed the slice under its masks, mask the target, run every block, decode."""
    start, stop, target = query
    L = stop - start
    index = torch.arange(start, stop)
    results = []
    with torch.no_grad():
        for t in range(T):
            keep = keep_masks(tensors.key[index], SEED, T, len(network.fields), width=network.config.width, rate=0.05)[
                :, t
            ]
            events = network.embed(tensors.features[index], keep)[None]
            hidden = network.contextualise(
                events,
                (index == target)[None],
                torch.zeros(1, L, dtype=torch.bool),
                torch.arange(L)[None],
                day_position=tensors.day_position[index][None],
            )[0, target - start]
            made = network.decode(hidden)
            results.append(
                {
                    "mean": made.mean.numpy().astype(np.float64),
                    "log_variance": made.log_variance.numpy().astype(np.float64),
                    "logits": made.logits[0].numpy().astype(np.float64),
                    "log_sigma": made.log_sigma[0].numpy().astype(np.float64),
                }
            )
    return results


def test_samples_equal_t_sequential_passes(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder, samples: Samples
) -> None:
    tensors = EventTensors(arrays)
    numbers = [f.name for f in encoder.fields if f.kind == "number"]
    poi = [f.name for f in encoder.fields].index("poi")
    for i in range(0, len(queries), 9):
        start, stop, target = (int(v[i]) for v in (queries.start, queries.stop, queries.target))
        passes = _slow_predictions(network, tensors, (start, stop, target))
        mean = np.array([p["mean"] for p in passes])
        variance = np.exp(np.array([p["log_variance"] for p in passes])).mean(0)
        truth = arrays.numbers[target].astype(np.float64)

        column = numbers.index("duration")
        made = samples.terms["duration"]
        assert made.expected[i] == pytest.approx(mean[:, column].mean(), rel=1e-4, abs=1e-5)
        assert made.au[i] == pytest.approx(variance[column], rel=1e-4)
        assert made.eu[i] == pytest.approx(mean[:, column].var(), rel=1e-3, abs=1e-8)
        square = (truth[column] - mean[:, column].mean()) ** 2
        assert made.loss[i] == pytest.approx(square / (2 * variance[column]), rel=1e-3, abs=1e-5)

        x, y = numbers.index("start_x"), numbers.index("start_y")
        angles = np.arctan2(mean[:, y], mean[:, x])
        centre = np.arctan2(mean[:, y].mean(), mean[:, x].mean())  # of the means, as the paper's θ̄
        delta = np.angle(np.exp(1j * (np.arctan2(truth[y], truth[x]) - centre)))
        beta = (variance[x] + variance[y]) / 2
        start_term = samples.terms["start"]
        assert start_term.loss[i] == pytest.approx(delta**2 / (2 * beta), rel=1e-3, abs=1e-5)
        assert start_term.eu[i] == pytest.approx((np.angle(np.exp(1j * (angles - centre))) ** 2).mean(), rel=1e-3)

        code = int(arrays.categories[target, 0])
        if code == 0:
            assert np.isnan(samples.terms["poi"].loss[i])
            continue
        noise = normal_noise(tensors.key[[target]], SEED, T, poi, classes=len(passes[0]["logits"])).numpy()[:, 0]
        noisy = np.array([p["logits"] + np.exp(p["log_sigma"]) * z for p, z in zip(passes, noise, strict=True)])
        chosen = np.exp(noisy[:, code]) / np.exp(noisy).sum(1)
        plain = np.mean([np.exp(p["logits"]) / np.exp(p["logits"]).sum() for p in passes], axis=0)
        term = samples.terms["poi"]
        assert term.loss[i] == pytest.approx(-np.log(chosen.mean()), rel=1e-3)
        assert term.eu[i] == pytest.approx(-sum(p * np.log(p) for p in plain if p > 0), rel=1e-4)
        assert term.au[i] == pytest.approx(np.mean([np.exp(2 * p["log_sigma"][code]) for p in passes]), rel=1e-4)
        assert term.error[i] == pytest.approx(1 - plain[code], rel=1e-4)


def test_samples_do_not_depend_on_batches_order_or_partitions(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder, samples: Samples
) -> None:
    tensors = EventTensors(arrays)
    order = np.random.default_rng(0).permutation(len(queries))
    tight = Budget(tokens=40, embedding_bytes=12 * T * network.config.width * 4)
    shuffled = sample(network, tensors, queries.take(order), encoder, samples=T, seed=SEED, budget=tight)
    back = Samples(
        {
            n: dataclasses.replace(v, **{c: getattr(v, c)[np.argsort(order)] for c in COLUMNS})
            for n, v in shuffled.terms.items()
        }
    )
    _close(samples, back)


class PlainPasses:
    """What `Passes` computes, by the network's own methods."""

    def __init__(self, network: DualTransformer) -> None:
        self.network, self.embed = network, network.embed

    def at(
        self, embeddings: torch.Tensor, row: torch.Tensor, hide: int, day_position: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        samples, (count, length) = len(embeddings), row.shape
        offset = torch.arange(length)
        masked = (offset == at[:, None]).repeat(samples, 1)
        masked[hide * count :] = False
        hidden = self.network.contextualise_at(
            embeddings[:, row.flatten()].view(samples * count, length, -1),
            masked,
            torch.zeros_like(masked),
            offset.expand(samples * count, length),
            day_position=day_position.repeat(samples, 1),
            at=at.repeat(samples),
        )
        return hidden.view(samples, count, -1)


def test_the_fast_passes_equal_the_network(
    network: DualTransformer,
    arrays: EventArrays,
    queries: Queries,
    encoder: Encoder,
    samples: Samples,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "passes_for", lambda *_: PlainPasses(network))
    _close(samples, sample(network, EventTensors(arrays), queries, encoder, samples=T, seed=SEED), rel=1e-3)


def test_threads_change_nothing(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder
) -> None:
    tensors, small = EventTensors(arrays), Budget(tokens=200, embedding_bytes=1 << 14)
    alone = sample(network, tensors, queries, encoder, samples=T, seed=SEED, budget=small)
    apart = embed_events(network, tensors, queries, budget=small)
    torch.set_num_threads(3)
    try:
        _close(alone, sample(network, tensors, queries, encoder, samples=T, seed=SEED, budget=small), rel=0, absolute=0)
        assert np.array_equal(apart, embed_events(network, tensors, queries, budget=small))
        assert torch.get_num_threads() == 3
        with pytest.raises(IndexError):  # what fails in a thread fails here, and the threads come back
            sample(
                network,
                tensors,
                Queries(queries.start + 10_000, queries.stop + 10_000, queries.target),
                encoder,
                samples=T,
                seed=1,
            )
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


def _double(arrays: EventArrays) -> EventTensors:
    tensors = EventTensors(arrays)
    f = tensors.features
    tensors.features = Features(f.numbers.double(), f.categories, f.vectors.double(), f.missing)
    return tensors


def test_epistemic_uncertainty_agrees_with_double_precision(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder, samples: Samples
) -> None:
    exact = sample(copy.deepcopy(network).double(), _double(arrays), queries, encoder, samples=T, seed=SEED)
    for name in ("start", "duration", "x", "y"):
        np.testing.assert_allclose(samples.terms[name].eu, exact.terms[name].eu, rtol=1e-3, atol=1e-9)
    for name in ("poi", "weekday"):
        np.testing.assert_allclose(samples.terms[name].eu, exact.terms[name].eu, rtol=1e-5)


def test_more_samples_change_nothing_but_the_average(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder
) -> None:
    few, many = (sample(network, EventTensors(arrays), queries, encoder, samples=t, seed=SEED) for t in (40, 80))
    difference = np.abs(few.terms["x"].expected - many.terms["x"].expected)
    error = np.sqrt(many.terms["x"].eu / 40)
    assert (difference < 5 * error + 1e-6).all()


@pytest.mark.parametrize(("aleatoric", "epistemic"), [(True, False), (False, True), (False, False)])
def test_uncertainties_can_be_switched_off(
    arrays: EventArrays, queries: Queries, encoder: Encoder, config: Config, aleatoric: bool, epistemic: bool
) -> None:
    kind = {(True, False): "aleatoric", (False, True): "epistemic", (False, False): "none"}[aleatoric, epistemic]
    changed = config.replace({"model.uncertainty": kind})
    torch.manual_seed(1)
    network = DualTransformer(encoder.fields, changed.model, changed.window.max_events)
    made = sample(network, EventTensors(arrays), queries, encoder, samples=T, seed=SEED)
    duration, poi = made.terms["duration"], made.terms["poi"]
    assert (duration.eu == 0).all() == (not epistemic)
    assert (duration.au == 0).all() == (not aleatoric)
    assert (poi.eu > 0).all()
    if not aleatoric:
        np.testing.assert_allclose(duration.loss, duration.error**2 / 2, rtol=1e-5, atol=1e-7)
        seen = np.isfinite(poi.loss)
        assert (np.nan_to_num(poi.au) == 0).all()
        if not epistemic:
            np.testing.assert_allclose(poi.loss[seen], -np.log(1 - poi.error[seen]), rtol=1e-3, atol=1e-4)


def test_without_dropout_the_noise_on_logits_is_drawn_t_times_all_the_same(
    arrays: EventArrays, queries: Queries, encoder: Encoder, config: Config
) -> None:
    changed = config.replace({"model.uncertainty": "aleatoric"})
    torch.manual_seed(1)
    network = DualTransformer(encoder.fields, changed.model, changed.window.max_events)
    tensors = EventTensors(arrays)
    made = sample(network, tensors, queries, encoder, samples=T, seed=SEED).terms["poi"]
    poi = [f.name for f in encoder.fields].index("poi")
    for i in np.flatnonzero(np.isfinite(made.loss))[::5]:
        start, stop, target = (int(v[i]) for v in (queries.start, queries.stop, queries.target))
        index = torch.arange(start, stop)
        with torch.no_grad():
            hidden = network.contextualise(
                network.embed(tensors.features[index])[None],
                (index == target)[None],
                torch.zeros(1, len(index), dtype=torch.bool),
                torch.arange(len(index))[None],
                day_position=tensors.day_position[index][None],
            )[0, target - start]
            predictions = network.decode(hidden)
        logits, log_sigma = (v[0].double().numpy() for v in (predictions.logits, predictions.log_sigma))
        noise = normal_noise(tensors.key[[target]], SEED, T, poi, classes=len(logits)).numpy()[:, 0]
        assert noise.std(0).min() > 0
        noisy = np.exp(logits + np.exp(log_sigma) * noise)
        chance = noisy[:, int(arrays.categories[target, 0])] / noisy.sum(1)
        assert made.loss[i] == pytest.approx(-np.log(chance.mean()), rel=1e-3)


def test_embeddings_of_a_shared_slice_equal_one_pass_each(
    network: DualTransformer, arrays: EventArrays, queries: Queries
) -> None:
    tensors = EventTensors(arrays)
    together = embed_events(network, tensors, queries, visible=True)
    alone = np.concatenate([embed_events(network, tensors, queries.take(np.array([i]))) for i in range(len(queries))])
    np.testing.assert_allclose(together, alone, atol=2e-5)
    masked = embed_events(network, tensors, queries, visible=False)
    assert np.abs(masked - together).max() > 1e-2


def test_an_event_cannot_see_itself_when_masked(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder, samples: Samples
) -> None:
    changed = dataclasses.replace(arrays, numbers=arrays.numbers.copy())
    one = queries.take(np.array([5]))
    changed.numbers[one.target] += 3.0
    other = sample(network, EventTensors(changed), one, encoder, samples=T, seed=SEED)
    assert other.terms["x"].expected[0] == pytest.approx(samples.terms["x"].expected[5], rel=1e-5)
    assert other.terms["x"].error[0] != pytest.approx(samples.terms["x"].error[5], rel=1e-2)


def test_rows_are_normalised_as_torch_does_it() -> None:
    x = torch.randn(200, 64) * 5 + 3
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
        found = normalise_rows(x, 1e-5, torch.empty(200, 64, dtype=dtype))
        assert torch.allclose(found.float(), torch.nn.functional.layer_norm(x, (64,)), atol=tolerance)


def test_half_precision_blocks_keep_the_uncertainty(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder, samples: Samples
) -> None:
    half = sample(network, EventTensors(arrays), queries, encoder, samples=T, seed=SEED, precision="half")
    exact = sample(copy.deepcopy(network).double(), _double(arrays), queries, encoder, samples=T, seed=SEED)
    for name in ("start", "duration", "x", "y"):
        relative = np.abs(half.terms[name].eu / exact.terms[name].eu - 1)
        assert np.median(relative) < 0.02
        np.testing.assert_allclose(half.terms[name].loss, samples.terms[name].loss, rtol=0.05, atol=5e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_samples(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder, samples: Samples
) -> None:
    there = copy.deepcopy(network).cuda()
    _close(
        samples,
        sample(there, EventTensors(arrays, "cuda"), queries, encoder, samples=T, seed=SEED, precision="fp32"),
        rel=1e-3,
    )
    half = sample(there, EventTensors(arrays, "cuda"), queries, encoder, samples=T, seed=SEED)
    _close(samples, half, rel=0.05, absolute=1e-2)


def test_nothing_to_sample_is_no_error(network: DualTransformer, arrays: EventArrays, encoder: Encoder) -> None:
    nothing = Queries(*(np.zeros(0, np.int64) for _ in range(3)))
    assert len(sample(network, EventTensors(arrays), nothing, encoder, samples=T, seed=SEED).terms["x"].loss) == 0


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")])
def test_samples_and_embeddings_are_the_same_in_less_memory(
    network: DualTransformer, arrays: EventArrays, queries: Queries, encoder: Encoder, samples: Samples,
    monkeypatch: pytest.MonkeyPatch, error: Exception,
) -> None:  # fmt: skip
    tensors, plain, lines = EventTensors(arrays), sampling.hidden_at, list[str]()
    embeddings = embed_events(network, tensors, queries, visible=False)
    budget = Budget(tokens=600, embedding_bytes=256 << 20)  # halved a few times, where the usual one is a dozen times

    def hidden_at(tensors: EventTensors, shared: torch.Tensor, slices: Any, *rest: Any, **named: Any) -> Any:
        if len(shared) * len(slices.start) > 2 * T:
            raise error
        return plain(tensors, shared, slices, *rest, **named)

    monkeypatch.setattr(sampling, "hidden_at", hidden_at)
    monkeypatch.setattr(sampling, "LEAST_TOKENS", 8)
    monkeypatch.setattr(sampling, "say", lines.append)
    _close(sample(network, tensors, queries, encoder, samples=T, seed=SEED, budget=budget), samples)
    again = embed_events(network, tensors, queries, visible=False, budget=budget)
    np.testing.assert_allclose(again, embeddings, rtol=1e-4, atol=1e-5)
    assert len(lines) > 2
    assert set(lines) == {"scoring: memory is full; once more with half as many events at a time"}


def test_another_error_is_no_lack_of_memory() -> None:
    def broken(budget: Budget) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        sampling.run_within(broken, Budget(1_000_000, 1 << 20), torch.device("cpu"))
