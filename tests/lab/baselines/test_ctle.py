"""CTLE: the embedding of one cell depends on the time and on what is around it."""

import numpy as np
import pytest
import torch
from example_towns import DAY, HOUR, MONDAY, stays, town

from ustad.events.windows import EventTensors
from ustad.lab.baselines.ctle import Ctle
from ustad.lab.baselines.trajectory_grid import Grid
from ustad.schema import EventSchema, Feature
from ustad.tables import DataError

SETTINGS = {"width": 16, "epochs": 12, "patience": 12, "batch_size": 32, "learning_rate": 1e-2, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted():
    return Ctle(**SETTINGS).fit(town(agents=12), town(agents=12, days=2, first_day=8))


def located(model: Ctle, events) -> torch.Tensor:
    """The learned location embeddings of one agent's events, nothing masked."""
    tensors = EventTensors(model.encoder.encode(events))
    batch = tensors.batch(torch.tensor([0]), torch.tensor([len(tensors)]), len(tensors))
    with torch.no_grad():
        network = model.network
        seen = network.embed(batch.features)
        x = network.enter(seen, torch.zeros_like(batch.padding), batch.position, batch.day_position)
        return network.locate(x, batch.padding)[0]


def day(hours: list[float], lons: list[float]):
    start = [MONDAY + 10 * DAY + int(h * HOUR) for h in hours]
    n = len(hours)
    return stays([0] * n, start, [60] * n, [60.0] * n, lons, ["work"] * n)


def angle(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def test_one_cell_has_another_embedding_at_another_time(fitted):
    morning, minutes_later, evening = (located(fitted, day([h], [25.2]))[0] for h in (8.0, 8.05, 20.0))
    assert angle(morning, minutes_later) > 0.99
    assert angle(morning, evening) < angle(morning, minutes_later) - 0.02


def test_one_cell_has_another_embedding_in_another_context(fitted):
    first = located(fitted, day([8, 17], [25.2, 25.4]))[0]
    second = located(fitted, day([8, 17], [25.2, 25.0]))[0]
    assert not torch.allclose(first, second, atol=1e-3)


def test_pre_training_finds_masked_cells_better_than_the_most_visited_cell(fitted):
    test = town(agents=12, days=4, first_day=10)
    tensors = EventTensors(fitted.encoder.encode(test))
    starts = torch.arange(0, len(tensors), 16)
    batch = tensors.batch(starts, starts + 16, 16)
    masked = torch.zeros_like(batch.padding)
    masked[:, 6] = True  # a shop, each agent's own
    network = fitted.network
    with torch.no_grad():
        seen = network.embed(batch.features)
        x = network.enter(seen, masked, batch.position, batch.day_position)
        guess = network.which_cell(network.locate(x, batch.padding))[masked].argmax(-1)
    truth = network.cells(batch.features)[masked]
    most = max(np.bincount(truth.numpy())) / len(truth)
    assert float((guess == truth).float().mean()) > most


def test_the_second_stage_leaves_the_embeddings_as_they_were_learned(fitted):
    frozen = {n for n, p in fitted.network.named_parameters() if not p.requires_grad}
    assert {"cell.weight", "frequency", "phase", "masked_token"} <= frozen
    assert not any(n.startswith(("blocks", "heads")) for n in frozen)


def test_cells_on_the_device_are_the_cells_of_the_grid(fitted):
    test = town(agents=12, days=1, first_day=10)
    arrays = fitted.encoder.encode(test)
    lat, lon = (test[c].to_numpy()[arrays.row] for c in ("lat", "lon"))
    x, y = fitted.encoder.projections["place"].forward(lat, lon)
    with torch.no_grad():
        found = fitted.network.cells(EventTensors(arrays).features).numpy()
    assert np.mean(found == fitted.grid.codes(x, y)) > 0.98  # float32 may fall on the other side of an edge


def test_the_grid_keeps_the_most_visited_cells():
    x = np.repeat([0.5, 1.5, 2.5], [5, 3, 1])
    grid = Grid.fit(x, np.zeros(9), 1.0, at_most=2)
    assert grid.codes(np.array([0.1, 1.9, 2.2, -7.0]), np.zeros(4)).tolist() == [1, 2, 0, 0]


def test_a_schema_without_a_time_of_day_is_refused():
    schema = EventSchema(
        "plain", (Feature("place", "place", ("lat", "lon")),), entity="agent_id", time="started_at", timezone="timezone"
    )
    with pytest.raises(DataError, match="time of day"):
        Ctle(schema, **SETTINGS).fit(town(agents=3, days=3), town(agents=3, days=1, first_day=3))
