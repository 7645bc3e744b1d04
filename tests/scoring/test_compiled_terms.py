"""Compiled loops against torch: the terms of one event, softmax of short rows, GELU."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
import torch

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.events.windows import Features
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference import inference_kernels as kernels
from ustad.network.inference.sampled_terms import Layout, reduce_term
from ustad.network.inference.sampling import SCALARS
from ustad.network.live.compiled_terms import CompiledTerms
from ustad.schema import mobility_schema

SAMPLES, EVENTS, SEED = 7, 12, 5


@pytest.fixture(scope="module")
def with_trips(stays: pa.Table) -> Encoder:
    """An encoder with every kind of term: angle, number, category, vector."""
    rng = np.random.default_rng(2)
    for name in ("trip_shape", "trip_speed"):
        stays = stays.append_column(name, pa.array(list(rng.normal(size=(len(stays), 16)).astype(np.float32))))
    return Encoder.fit(stays, mobility_schema(trips="embedding"))


def _events(encoder: Encoder) -> list[np.ndarray]:
    """numbers, categories, vectors, missing and key; one field in six is missing."""
    rng = np.random.default_rng(3)
    sizes = {kind: [f.size for f in encoder.fields if f.kind == kind] for kind in ("number", "category", "vector")}
    missing = rng.random((EVENTS, len(encoder.fields))) < 1 / 6
    codes = np.stack([rng.integers(1, size, EVENTS) for size in sizes["category"]], axis=1)
    lost = missing[:, len(sizes["number"]) : len(sizes["number"]) + codes.shape[1]]
    return [
        rng.normal(size=(EVENTS, len(sizes["number"]))).astype(np.float32),
        np.where(lost, 0, codes),
        rng.normal(size=(EVENTS, sum(sizes["vector"]))).astype(np.float32),
        missing,
        rng.integers(-(2**62), 2**62, EVENTS),
    ]


@pytest.mark.parametrize("uncertainty", ["both", "epistemic", "aleatoric"])
def test_the_terms_of_one_event_are_those_of_the_batch(with_trips: Encoder, config: Config, uncertainty: str) -> None:
    torch.manual_seed(1)
    settings = dataclasses.replace(config.model, uncertainty=uncertainty)
    aleatoric, passes = uncertainty != "epistemic", 1 if uncertainty == "aleatoric" else SAMPLES
    network = DualTransformer(with_trips.fields, settings, config.window.max_events).eval()
    layout = Layout.of(with_trips.fields, with_trips.terms, aleatoric, SAMPLES)
    hidden = 3 * torch.randn(passes, EVENTS, settings.width)
    fields = _events(with_trips)
    *held, key = (torch.from_numpy(f) for f in fields)
    quick = CompiledTerms(network, layout, SEED)
    with torch.inference_mode():
        predictions = network.decode(hidden)
        wanted = [reduce_term(t, layout, predictions, Features(*held), key=key, seed=SEED) for t in layout.terms]
        for i in range(EVENTS):
            lines, vectors = quick(hidden[:, i], [f[i : i + 1] for f in fields])  # one pass has several draws
            line = np.array([[float(getattr(w, name)[i]) for name in SCALARS] for w in wanted])
            np.testing.assert_allclose(lines, line, rtol=2e-5, atol=2e-6)
            for term, want in zip(layout.terms, wanted, strict=True):
                if want.vector is not None:
                    np.testing.assert_allclose(vectors[term.name], want.vector[i], rtol=1e-5, atol=1e-6)


def test_a_category_that_cannot_be_has_a_finite_loss(encoder: Encoder, network: DualTransformer) -> None:
    layout = Layout.of(encoder.fields, encoder.terms, True)
    quick = CompiledTerms(network, layout, SEED)
    fields = [f[:1] for f in _events(encoder)]
    fields[3][:] = False
    fields[1][:] = 1
    lines, _ = quick(torch.full((SAMPLES, network.config.width), 1e5), fields)
    assert np.isfinite(lines).all()


@pytest.mark.parametrize("length", [1, 3, 12, 40])
def test_rows_are_exponentiated_as_torch_does_it(length: int) -> None:
    rows = torch.from_numpy(np.random.default_rng(4).normal(0, 20, (50, length)).astype(np.float32))
    rows[0] = -1e9  # hidden keys only
    rows[1, :1] = 1e4
    found = rows.clone()
    kernels.softmax(found.numpy(), np.empty(found.numel(), np.float32))
    np.testing.assert_allclose(found, torch.softmax(rows.double(), -1), rtol=1e-4, atol=1e-6)


def test_gelu_is_that_of_torch() -> None:
    x = torch.cat([torch.linspace(-12, 12, 5001), torch.tensor([-1e6, 1e6, 0.0])])
    found = x.clone()
    kernels.gelu(found.numpy())
    np.testing.assert_allclose(found, torch.nn.functional.gelu(x.double()), rtol=1e-6, atol=2e-6)


def test_elements_come_out_the_same_wherever_they_stand() -> None:
    """A batch of another size puts other elements into the vectors of a loop."""
    rows = np.random.default_rng(5).normal(0, 3, (40, 12)).astype(np.float32)
    whole, active = rows.copy(), rows.copy()
    kernels.softmax(whole, np.empty(whole.size, np.float32))
    kernels.gelu(active.reshape(-1))
    for count in range(1, 40):
        part = rows[:count].copy()
        kernels.softmax(part, np.empty(part.size, np.float32))
        assert (part == whole[:count]).all()
        some = rows[:count].reshape(-1)[: 12 * count - 5].copy()
        kernels.gelu(some)
        assert (some == active.reshape(-1)[: len(some)]).all()
