"""The memory network's fast passes against the network as it is trained, question by question."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import FIRST_DAY, between, insert_visit, make_routine

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.events.visits import Frame, read_visits
from ustad.events.windows import EventTensors, make_queries, make_windows
from ustad.habits.history import Habits
from ustad.network.inference import memory_terms
from ustad.network.inference.counter import keep_masks
from ustad.network.inference.memory_model import new_network
from ustad.network.inference.memory_passes import MemoryPasses, WindowRows
from ustad.network.inference.memory_terms import chain_terms, sample_memory, uncertainties
from ustad.network.inference.sampling import Budget
from ustad.network.place_counts import MemoryTensors, OwnPlaces
from ustad.network.training.memory_step import Data, ask, recall, targets_of
from ustad.schema import mobility_schema

SCHEMA = mobility_schema("none", 16, True)
T, SEED = 3, 11


class Asked:
    """Questions about a week with new places, with and without a position, and with a stranger; weights are noise."""

    def __init__(self, device="cpu", **changes):
        size = {"model.width": 16, "model.heads": 2, "model.event_blocks": 2}
        self.config = Config.preset("best", **{**size, **changes})
        life = make_routine(seed=5, agents=5, days=28)
        train, week = between(life, 0, 21), between(life, 18, 28)
        self.encoder, frame = Encoder.fit(train, SCHEMA), Frame.fit(train, SCHEMA)
        habits = Habits.fit(read_visits(train, SCHEMA, frame))
        week = insert_visit(insert_visit(week, 2, 22, 1350, minutes=40), 3, 23, 700, minutes=40, poi=998)
        week = week.set_column(
            1, "agent_id", pa.array(np.where(week["agent_id"].to_numpy() == 4, 77, week["agent_id"]))
        )
        arrays, own = self.encoder.encode(week), OwnPlaces.fit(habits, self.config.model.places)
        visits = read_visits(week, SCHEMA, frame)
        self.data = Data(EventTensors(arrays, device), MemoryTensors(own, habits, visits, device))
        self.data.memory.is_located[::11] = False
        self.data.memory.is_timed[::7] = False
        windows = make_windows(arrays, self.config.window, first_day=FIRST_DAY + 21)
        questions = make_queries(arrays, windows, self.config.window)
        self.questions = questions.take(np.arange(0, len(questions), 3))
        self.network = new_network(self.encoder, frame, self.config).eval()
        rng = torch.Generator().manual_seed(2)
        with torch.no_grad():  # norms and biases begin as 1 and 0, where folding them would hide a fault
            for weight in self.network.parameters():
                weight += 0.1 * torch.randn(weight.shape, generator=rng)
        self.network.to(device)

    @torch.no_grad()
    def plainly(self):
        """Each question by itself, as training asks it: raw terms, uncertainties and chances of own places."""
        rows = [self._one(i) for i in range(len(self.questions))]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _one(self, i):
        one, events = self.questions.take(np.array([i])), self.data.events
        start, stop, target = (torch.from_numpy(v) for v in (one.start, one.stop, one.target))
        index = events.batch(start, stop, int(one.length[0])).index
        model, features = self.config.model, events.features[index[0]]
        if model.epistemic:
            fields = len(self.network.fields)
            keep = keep_masks(events.key[index[0]], SEED, T, fields, width=model.width, rate=model.dropout)
            made = self.network.embed(features, keep.transpose(0, 1))
        else:
            made = self.network.embed(features)[None]
        row = torch.arange(index.shape[1])[None]
        outlook = ask(self.network, self.data, made, start, stop=stop, target=target, row=row)
        aleatoric, epistemic = uncertainties([outlook.places, outlook.starts, outlook.durations])
        terms = {name: float(value) for name, value in chain_terms(outlook).items()}
        slot = int(outlook.places.exp().mean(dim=0).argmax())
        return {**terms, "aleatoric": float(aleatoric), "epistemic": float(epistemic), "expected_slot": slot}


@pytest.fixture(scope="module")
def asked():
    return Asked()


def told(samples):
    rest = {name: getattr(samples, name) for name in ("aleatoric", "epistemic", "expected_slot")}
    return {**samples.terms, **rest}


def same(found, expected, tolerance=2e-5):
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(
    "changes", [{}, {"model.uncertainty": "aleatoric"}, {"window.mode": "past", "model.event_blocks": 1}]
)
def test_the_fast_passes_give_what_the_network_gives(changes):
    asked = Asked(**changes)
    assert len(set(asked.questions.length)) > 3
    found = told(sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED))
    same(found, asked.plainly())
    assert np.ptp(found["memory_place"]) > 1


@pytest.mark.parametrize("budget", [Budget(1, 1), Budget(400, 3000), Budget(10**6, 10**9)])
def test_neither_the_size_of_batches_nor_of_partitions_changes_an_answer(asked, budget):
    whole = told(sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED))
    same(told(sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED, budget=budget)), whole)


def test_samples_are_averaged_as_chances_and_not_as_logarithms():
    """A chance of 0.9 in one sample and of 0.1 in the other is one of a half."""
    chances = {
        "place": [[0.9], [0.1]],
        "category": [[1.0], [0.5]],
        "start": [[0.2], [0.6]],
        "duration": [[1e-9], [0.8]],
    }
    logs = {name: torch.log(torch.tensor(values, dtype=torch.float64)) for name, values in chances.items()}
    terms = chain_terms(SimpleNamespace(**logs))
    expected = {"memory_place": (0.9 + 0.05) / 2, "memory_start": 0.4, "memory_duration": 0.4}
    for name, chance in expected.items():
        assert float(terms[name][0]) == pytest.approx(-np.log(chance), rel=1e-6), name


def test_threads_change_no_answer(asked):
    """As many threads as cores, each with its own buffers."""
    alone = told(sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED, budget=Budget(300, 10**6)))
    held = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        together = told(
            sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED, budget=Budget(300, 10**6))
        )
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(held)
    same(together, alone)


def test_the_host_knows_what_the_heads_find_at_no_own_place(asked):
    memory = asked.data.memory
    counts = memory.sum_counts(memory.owner)[..., 0]  # [N, K] visits to each own place
    own = memory.slot.clamp(max=memory.most - 1)
    wanted = (memory.slot >= memory.most) | (counts[torch.arange(len(memory)), own] == 0)
    np.testing.assert_array_equal(memory.is_elsewhere, wanted.numpy())
    assert 0 < wanted.sum() < len(memory)
    stranger = memory.owner.numpy() == len(memory.counts) - 1
    assert stranger.any()
    assert memory.is_elsewhere[stranger].all()


@torch.inference_mode()
def test_one_product_for_all_entities_equals_one_for_each(asked):
    """A GPU takes the first way, a CPU the second."""
    passes, memory, L = MemoryPasses(asked.network), asked.data.memory, 4
    first = torch.tensor([0, 1, 60, 61, 62, len(memory) - L])
    entity, counts = torch.unique_consecutive(memory.owner[first], return_counts=True)
    known = passes.know(recall(asked.network, memory, first[counts.cumsum(0) - 1]), counts)
    assert len(entity) == 3
    assert known.counts == (2, 3, 1)
    index = first[:, None] + torch.arange(L)
    seen = WindowRows(
        index, asked.data.events.day_position[index], memory.weekday[index], memory.slot[index], first * 0 + 2
    )
    shared = torch.randn(T, len(memory), asked.config.model.width, generator=torch.Generator().manual_seed(0))
    ways = [passes.outlook(shared, seen, k, targets_of(memory, first + 2)) for k in (known, replace(known, counts=()))]
    for name, values in vars(ways[0]).items():
        torch.testing.assert_close(getattr(ways[1], name), values, msg=name)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float16, 0.02), (torch.bfloat16, 0.15)])
def test_half_precision_is_near_full_also_for_strangers(asked, monkeypatch, kind, tolerance):
    full = sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED)
    monkeypatch.setattr(memory_terms, "_kind", lambda precision, device: kind)
    half = sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED)
    for name, values in full.terms.items():
        assert 0 < np.abs(half.terms[name] - values).max() < tolerance, name
    stranger = asked.data.memory.owner[torch.from_numpy(asked.questions.target)] == len(asked.data.memory.counts) - 1
    assert 0 < stranger.sum() < len(stranger)


def test_what_overflows_in_half_precision_is_asked_again_in_full(monkeypatch):
    asked = Asked()
    with torch.no_grad():
        asked.network.event_blocks[0].forward_in.bias += 70_000.0  # beyond fp16
    full = told(sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED, precision="fp32"))
    kinds = {"auto": torch.float16, "fp32": None}
    monkeypatch.setattr(memory_terms, "_kind", lambda precision, device: kinds[precision])
    found = told(sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED))
    assert np.isfinite(found["epistemic"]).all()
    same(found, full, tolerance=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("auto", 0.02)])
def test_a_gpu_gives_what_a_cpu_gives(asked, precision, tolerance):
    full = told(sample_memory(asked.network, asked.data, asked.questions, T, seed=SEED))
    there = Asked(device="cuda")
    assert there.data.events.device.type == "cuda"
    found = told(sample_memory(there.network, there.data, there.questions, T, seed=SEED, precision=precision))
    for name in ("memory_place", "memory_start", "memory_duration", "aleatoric", "epistemic"):
        assert np.abs(found[name] - full[name]).max() < tolerance, name
