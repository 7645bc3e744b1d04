"""The memory network: its distributions against plain formulas, and what it must not see."""

import copy
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import FIRST_DAY, between, make_routine, with_gaps

from ustad.config import Config, ConfigError, TrainingConfig
from ustad.events.encoder import Encoder
from ustad.events.observed import read_gaps
from ustad.events.visits import Frame, read_visits
from ustad.events.windows import EventTensors, make_queries, make_windows
from ustad.habits.history import Habits
from ustad.network.inference.memory_model import new_network
from ustad.network.inference.memory_terms import sample_memory, uncertainties
from ustad.network.place_counts import HOURS, MemoryTensors, OwnPlaces
from ustad.network.place_memory import AREA_KM, FLOOR, KERNELS_KM, Memory, Outlook, Targets
from ustad.network.training import estimate, memory_task
from ustad.network.training.memory_step import Data, _parts, ask, recall, span_masks, training_loss
from ustad.network.training.memory_task import CHECKPOINT, MemoryTask, fit_batch, fit_memory, fit_passes
from ustad.network.training.update import Update
from ustad.schema import mobility_schema

SCHEMA = mobility_schema("none", 16, True)
SMALL = {
    "model.width": 16, "model.heads": 2, "model.event_blocks": 2, "training.batch_size": 64,
    "training.learning_rate": 5e-3, "training.recipe": "paper", "training.epochs": 4,
}  # fmt: skip


class World:
    """A small network with data; tests change one thing at a time."""

    def __init__(self, mode="day", **changes):
        self.config = Config.preset("best", **{**SMALL, "window.mode": mode, **changes})
        self.table = make_routine(seed=3, agents=6, days=28)
        self.train = between(self.table, 0, 21)
        self.frame = Frame.fit(self.train, SCHEMA)
        self.encoder = Encoder.fit(self.train, SCHEMA)
        self.habits = Habits.fit(read_visits(self.train, SCHEMA, self.frame))
        self.own = OwnPlaces.fit(self.habits, self.config.model.places)
        self.network = new_network(self.encoder, self.frame, self.config).eval()

    def data(self, table):
        visits, arrays = read_visits(table, SCHEMA, self.frame), self.encoder.encode(table)
        np.testing.assert_array_equal(visits.row, arrays.row)
        return arrays, Data(EventTensors(arrays), MemoryTensors(self.own, self.habits, visits))

    def questions(self, table, first=21):
        arrays, data = self.data(table)
        windows = make_windows(arrays, self.config.window, first_day=FIRST_DAY + first)
        return arrays, data, make_queries(arrays, windows, self.config.window)


@pytest.fixture(scope="module")
def world():
    return World()


# ----------------------------------------------------------------------------------------- own places
def test_counts_of_all_blocks_are_the_habits_counts(world):
    present = world.own.place >= 0
    counts = world.own.counts.sum(axis=1, dtype=np.int64)
    np.testing.assert_array_equal(counts[..., 0][present], world.habits.place_count[world.own.place[present]])
    np.testing.assert_array_equal(counts[..., 1 : 1 + 2 * HOURS].sum(axis=-1), counts[..., 0])
    assert (np.diff(counts[..., 0], axis=1) <= 0).all()  # most visited first


def test_the_memory_of_a_training_window_leaves_out_its_weeks(world):
    """Whatever happens in the window's own blocks, the memory that the window is trained with stays the same."""
    _, data = world.data(world.train)
    first = torch.tensor([data.memory.block.eq(1).nonzero()[0, 0]])
    include = data.memory.outside(first, first)
    assert include.tolist() == [[True, False, True]]
    before = data.memory.sum_counts(data.memory.owner[first], include)
    data.memory.counts[:, 1] = 99
    torch.testing.assert_close(data.memory.sum_counts(data.memory.owner[first], include), before)


def test_a_stranger_has_an_empty_memory(world):
    stranger = world.table.set_column(1, "agent_id", pa.array(world.table["agent_id"].to_numpy() + 50))
    _, data = world.data(stranger)
    memory = recall(world.network, data.memory, torch.tensor([0, 5]))
    assert memory.absent.all()
    assert (data.memory.slot == world.own.most).all()


# ------------------------------------------------------------------------------------------ what is seen
def answers(world, table):
    arrays, data, questions = world.questions(table)
    return arrays, questions, sample_memory(world.network, data, questions, 3, seed=7)


def test_neither_the_event_nor_its_neighbours_tell_their_own_place_or_time():
    """What is expected of an event does not change when it and the events beside it change."""
    world = World()
    arrays, _, questions = world.questions(world.table)
    chosen = int(np.flatnonzero(arrays.entity[questions.target] == 2)[6])
    event = int(questions.target[chosen])
    rows = arrays.row[event - 1 : event + 2]
    lat = world.table["lat"].to_numpy().copy()
    lat[rows] += 0.3
    kind = np.array(world.table["poi_category"].to_pylist(), dtype=object)
    kind[rows] = "Shop"
    changed = world.table.set_column(world.table.column_names.index("lat"), "lat", pa.array(lat))
    changed = changed.set_column(changed.column_names.index("poi_category"), "poi_category", pa.array(kind.tolist()))
    first, second = (places_expected(world, table, chosen) for table in (world.table, changed))
    torch.testing.assert_close(second, first)
    lat[arrays.row[event - 2]] += 0.3  # what is not hidden does matter
    moved = changed.set_column(changed.column_names.index("lat"), "lat", pa.array(lat))
    assert not torch.allclose(places_expected(world, moved, chosen), first)


@torch.no_grad()
def places_expected(world, table, chosen):
    """Log-chances of every own place and of somewhere new, for one question."""
    _, data, questions = world.questions(table)
    one = questions.take(np.array([chosen]))
    start, stop, target = (torch.from_numpy(v) for v in (one.start, one.stop, one.target))
    index = data.events.batch(start, stop, int(one.length[0])).index
    events = world.network.embed(data.events.features[index[0]])[None]
    row = torch.arange(index.shape[1])[None]
    return ask(world.network, data, events, start, stop=stop, target=target, row=row).places


def test_with_the_window_past_later_events_change_nothing():
    world = World("past")
    arrays, questions, plain = answers(world, world.table)
    days = world.table["started_at"].cast(pa.int64()).to_numpy() // 86_400_000_000 - FIRST_DAY
    lat = world.table["lat"].to_numpy() + np.where(days >= 24, 0.2, 0.0)
    moved = world.table.set_column(world.table.column_names.index("lat"), "lat", pa.array(lat))
    _, _, other = answers(world, moved)
    early = days[arrays.row[questions.target]] < 24
    for name in plain.terms:
        np.testing.assert_allclose(other.terms[name][early], plain.terms[name][early], rtol=1e-5, atol=1e-6)
    assert not np.allclose(other.terms["memory_place"][~early], plain.terms["memory_place"][~early])


def test_answers_do_not_depend_on_which_questions_are_asked_together(world):
    _, data, questions = world.questions(world.table)
    whole = sample_memory(world.network, data, questions, 3, seed=7)
    some = np.arange(0, len(questions), 7)
    part = sample_memory(world.network, data, questions.take(some), 3, seed=7)
    for name in whole.terms:
        np.testing.assert_allclose(part.terms[name], whole.terms[name][some], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(part.epistemic, whole.epistemic[some], rtol=1e-2, atol=1e-6)


# ------------------------------------------------------------------------------------------ distributions
def one_memory(K=3, D=16):
    torch.manual_seed(0)
    absent = torch.tensor([[False, False, True]])
    return Memory(
        torch.randn(1, K, D), absent, torch.tensor([[0.0, 4.0, 9.0]]), torch.tensor([[0.0, 3.0, 9.0]]),
        torch.log(torch.tensor([[0.6, 0.3, 0.1]])), torch.zeros(1, K, 2, 48), torch.zeros(1, K, 32),
    )  # fmt: skip


def one_target(slot, x=0.0, y=0.0):
    yes = torch.tensor([True])
    numbers = [torch.tensor([v]) for v in (20, 9)]
    return Targets(
        torch.tensor([slot]), torch.tensor([x]), torch.tensor([y]), yes, torch.tensor([1]), ~yes, *numbers, yes
    )


@torch.no_grad()
def test_every_distribution_sums_to_one_and_absent_places_have_no_chance(world):
    outlook = world.network.foresee(torch.randn(2, 1, 16), one_memory(), one_target(0))
    for logs in (outlook.places, outlook.starts, outlook.durations):
        torch.testing.assert_close(logs.exp().sum(dim=-1), torch.ones(2, 1))
    assert (outlook.places[..., 2].exp() == 0).all()
    torch.testing.assert_close(outlook.place, outlook.places[..., 0])


@torch.no_grad()
def test_a_new_place_costs_its_chance_and_a_heavy_tailed_density(world):
    hidden, memory = torch.randn(1, 1, 16), one_memory()
    heads = world.network.memory.heads
    outlook = world.network.foresee(hidden, memory, one_target(3, 10.0, 10.0))
    target = heads.target(memory.tokens)[0].double()
    weight = (heads.around(hidden)[0, 0].double() @ target[:2].T / 4).softmax(dim=0)
    reach = heads.reach(hidden)[0, 0].double().softmax(dim=0)
    density = 0.0
    for k, (x, y) in enumerate(((0.0, 0.0), (4.0, 3.0))):
        for s, width in enumerate(KERNELS_KM):
            square = (10 - x) ** 2 + (10 - y) ** 2
            density += weight[k] * reach[s] * (1 + square / width**2) ** -1.5 / (2 * math.pi * width**2)
    density = (1 - FLOOR) * density + FLOOR / (2 * AREA_KM) ** 2
    expected = outlook.places[0, 0, 3].double() + torch.log(density)
    assert float(outlook.place) == pytest.approx(float(expected), rel=1e-4)


def test_the_density_of_new_places_integrates_to_about_one(world):
    edge = torch.linspace(-60, 60, 241)
    x, y = (v.flatten() for v in torch.meshgrid(edge, edge, indexing="ij"))
    n = len(x)
    memory = one_memory()
    spread = Memory(*(v.expand(n, *v.shape[1:]) for v in vars(memory).values()))
    single = one_target(3)
    targets = Targets(*(v.expand(n) for v in vars(single).values()))
    targets.x, targets.y = x, y
    with torch.no_grad():
        outlook = world.network.foresee(torch.zeros(1, n, 16), spread, targets)
    mass = (outlook.place - outlook.places[..., 3]).exp().sum() * 0.25
    assert 0.6 < float(mass) < 1.1  # the tails beyond 60 km, and kernels narrower than the grid, are missed


def test_uncertainties_are_entropy_and_mutual_information():
    rng = np.random.default_rng(0)
    chance = rng.dirichlet(np.ones(5), size=(4, 3))
    aleatoric, epistemic = uncertainties([torch.from_numpy(np.log(chance))])
    entropy = -(chance * np.log(chance)).sum(-1).mean(0)
    mean = chance.mean(0)
    np.testing.assert_allclose(aleatoric, entropy)
    np.testing.assert_allclose(epistemic, -(mean * np.log(mean)).sum(-1) - entropy)
    same = torch.from_numpy(np.log(np.repeat(chance[:1], 4, axis=0)))
    np.testing.assert_allclose(uncertainties([same])[1], 0.0, atol=1e-12)


# ----------------------------------------------------------------------------------------------- training
def test_spans_hide_neighbours_and_never_padding():
    torch.manual_seed(0)
    padding = torch.arange(12) >= torch.randint(1, 13, (200, 1))
    masked = span_masks(padding, 0.15)
    assert not (masked & padding).any()
    assert masked.any(dim=1).all()
    assert (masked[:, 1:] & masked[:, :-1]).any(dim=1).float().mean() > 0.25


def test_a_span_hides_the_events_on_both_sides():
    """With one event chosen in each window, what is hidden is that one or all three around it."""
    torch.manual_seed(1)
    length = torch.randint(3, 13, (300, 1))
    masked = span_masks(torch.arange(12) >= length, 0.0)
    first, count = masked.int().argmax(dim=1), masked.sum(dim=1)
    last = first + count - 1
    assert (masked.cumsum(dim=1).gather(1, last[:, None])[:, 0] == count).all(), "they are next to each other"
    inside = (first > 0) & (last < length[:, 0] - 1)
    assert set(count[inside].tolist()) == {1, 3}
    assert set(count[~inside].tolist()) == {1, 2, 3}  # one at an end has one neighbour


def test_training_lowers_the_loss_and_the_same_seed_gives_the_same_network():
    runs = []
    for _ in range(2):
        world = World(**{"training.epochs": 3})
        arrays, data = world.data(world.train)
        _, held, questions = world.questions(world.table)
        result = fit_memory(
            world.network, data, make_windows(arrays, world.config.window), (held, questions), config=world.config
        )
        runs.append((result, world.network.state_dict()))
    assert runs[0][0].losses[-1] < runs[0][0].losses[0]
    assert runs[0][0].losses == runs[1][0].losses
    for name, value in runs[0][1].items():
        torch.testing.assert_close(value, runs[1][1][name], rtol=0, atol=0)


def test_padding_changes_no_loss(world):
    _, data = world.data(world.train)
    start, stop = torch.tensor([0, 40]), torch.tensor([6, 47])
    with torch.no_grad():
        torch.manual_seed(5)
        short = world.network.embed(data.events.batch(start, stop, 7).features)
        long = world.network.embed(data.events.batch(start, stop, 12).features)
    torch.testing.assert_close(short[1], long[1, :7])
    assert torch.isfinite(training_loss(world.network, data, start, stop, length=12, ratio=0.3))


def test_a_step_of_fixed_shape_has_the_same_loss(world):
    _, data = world.data(world.train)
    start, stop = torch.tensor([0, 40, 80]), torch.tensor([6, 47, 91])
    losses = []
    for size in (None, 64, 3):
        torch.manual_seed(5)
        world.network.eval()
        losses.append(float(training_loss(world.network, data, start, stop, length=12, ratio=0.3, size=size).detach()))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] != pytest.approx(losses[0], rel=1e-3)  # what there is no room for is left out of the mean
    empty = [torch.nn.functional.pad(ends, (0, 2)) for ends in (start, stop)]  # windows that make a batch full
    assert torch.isfinite(training_loss(world.network, data, *empty, length=12, ratio=0.3, size=64))


def test_unseen_times_count_less_in_the_loss_and_only_where_the_network_is_told():
    world = World()
    gaps = with_gaps(world.train)
    parts = {}
    for told in (False, True):
        world.encoder = Encoder.fit(world.train, mobility_schema("none", 16, True, ends_seen=told))
        _, data = world.data(gaps)
        n = len(data.memory)
        chances = -torch.rand(4, 1, n, generator=torch.Generator().manual_seed(1))
        parts[told] = _parts(Outlook(*chances, *[torch.empty(0)] * 3), data, torch.arange(n))
    plain, weighted = parts[False], parts[True]
    early, late = read_gaps(gaps)
    start, end = (40 / (40 + np.minimum(gap, 1440)) for gap in (early, late))
    np.testing.assert_allclose(weighted["start"][0].numpy(), plain["start"][0].numpy() * start, rtol=1e-5)
    np.testing.assert_allclose(weighted["duration"][0].numpy(), plain["duration"][0].numpy() * start * end, rtol=1e-5)
    for name in ("place", "category"):
        torch.testing.assert_close(weighted[name], plain[name], rtol=0, atol=0)


def trained(directory, resume=False, **changes):
    world = World(**{"training.epochs": 3, "training.batch_size": 24, **changes})
    arrays, data = world.data(world.train)
    _, held, questions = world.questions(world.table)
    windows = make_windows(arrays, world.config.window)
    result = fit_memory(
        world.network, data, windows, (held, questions), config=world.config, directory=directory, resume=resume
    )
    return result, world.network.state_dict()


@pytest.mark.parametrize("lacking", [3, 20])
def test_the_estimate_is_that_of_all_steps_and_validations_within_a_factor_of_two(lacking, monkeypatch):
    """Time stands for work: a step takes as long as it has places, a question five times as long as its window."""
    world = World(**{"training.epochs": 6})
    arrays, data = world.data(world.train)
    _, held, questions = world.questions(world.table)
    windows = make_windows(arrays, world.config.window)
    config = world.config.replace({"training.batch_size": len(windows) - lacking})  # two steps, of which one is small
    questions = questions.take(np.arange(5))
    task = MemoryTask(world.network, data, held, questions, config)
    weights, chance = copy.deepcopy(world.network.state_dict()), torch.get_rng_state()
    assert estimate.rough_seconds(task, windows, config) > 0
    assert all(torch.equal(weights[name], value) for name, value in world.network.state_dict().items())
    assert torch.equal(chance, torch.get_rng_state())
    now = 0

    def step(self, start, stop, length):
        nonlocal now
        now += len(start) * length
        return torch.zeros(1)

    def ask_all(network, data, queries):
        nonlocal now
        now += 5 * int(queries.length.sum())
        return {"place": 1.0 / now}

    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(Update, "__call__", step)
    monkeypatch.setattr(memory_task, "validate", ask_all)
    estimated = estimate.rough_seconds(task, windows, config)
    began = now
    fit_memory(world.network, data, windows, (held, questions), config=config)
    assert 0.5 < estimated / (now - began) < 2


def test_a_killed_run_goes_on_to_the_same_network(tmp_path, monkeypatch):
    straight = trained(None)
    monkeypatch.setattr(TrainingConfig, "checkpoint_minutes", 0.0)
    steps = 0
    step = Update.__call__

    def counted(self, *arguments):
        nonlocal steps
        steps += 1
        if steps == 8:
            raise KeyboardInterrupt
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Update, "__call__", counted)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path)
    assert (tmp_path / CHECKPOINT).exists()
    resumed = trained(tmp_path, resume=True)
    assert resumed[0].losses == straight[0].losses
    for name, value in straight[1].items():
        torch.testing.assert_close(resumed[1][name], value, rtol=0, atol=0)
    again = trained(tmp_path, resume=True)  # it is done: nothing happens
    assert again[0].losses == straight[0].losses


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    trained(tmp_path)
    with pytest.raises(ConfigError, match="other settings or other data"):
        trained(tmp_path, resume=True, **{"training.learning_rate": 0.5})


def test_batches_grow_on_a_gpu_while_enough_steps_are_left():
    config, cuda = Config.preset("best"), torch.device("cuda")
    training = config.training
    assert fit_batch(config, 10_000_000, torch.device("cpu")) == config
    assert fit_batch(config, 60_000, cuda) == config
    large = fit_batch(config, 200_000, cuda).training
    assert (large.batch_size, large.learning_rate) == (4 * training.batch_size, 2 * training.learning_rate)
    assert training.epochs * 200_000 / large.batch_size >= 3_500
    huge = fit_batch(config, 100_000_000, cuda).training
    assert huge.batch_size == 16 * training.batch_size
    assert huge.learning_rate == 2 * training.learning_rate


def test_much_data_is_passed_over_less_often():
    config = Config.preset("best")
    passes = [fit_passes(config, windows).training.epochs for windows in (1_000, 372_000, 1_000_000, 3_700_000, 10**9)]
    assert passes == [config.training.epochs, config.training.epochs, 8, 2, 2]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_shrink_where_there_are_few_windows(device):
    config = Config.preset("best")
    training = config.training
    small = fit_batch(config, 2_600, torch.device(device)).training
    assert small.batch_size == training.batch_size // 8 == 32
    assert small.learning_rate == pytest.approx(training.learning_rate / 2)
    middle = fit_batch(config, 15_000, torch.device(device)).training
    assert training.epochs * 15_000 / middle.batch_size >= 2_000 > training.epochs * 15_000 / training.batch_size
    assert middle.batch_size == training.batch_size // 2
