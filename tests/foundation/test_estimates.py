"""What long work says beforehand about how long it will take, and that saying it changes nothing."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from ustad import progress
from ustad.detector import Detector
from ustad.files import find_table, read_table
from ustad.lab.search_network import search
from ustad.mobility import extraction
from ustad.simulate import simulation
from ustad.tables import TIMESTAMP

LONG = r"(a few seconds|about \d+ (seconds|minutes|hours))"


@pytest.fixture
def said() -> io.StringIO:
    """What is shown; `conftest.py` turns it off before the next test."""
    screen = io.StringIO()
    progress.enable(Console(file=screen, width=200))
    return screen


class Clock:
    """Stands for the module `time`: no time passes unless somebody says so."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


def read(directory: Path, name: str) -> pa.Table:
    found = find_table(directory, name)
    assert found is not None
    return read_table(found)


def test_a_simulation_says_how_long_and_is_the_same(
    said: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "WORTH_AN_ESTIMATE", 10)
    simulation.simulate("town", 12, 3, tmp_path / "told", days=3, fixes="10min")
    assert re.search(rf"12 agents over 3 days: {LONG}", said.getvalue())
    with progress.silence():
        simulation.simulate("town", 12, 3, tmp_path / "untold", days=3, fixes="10min")
    for name in ("stays", "fixes"):
        assert read(tmp_path / "told", name).equals(read(tmp_path / "untold", name))


def test_an_extraction_says_how_long_and_is_the_same(
    said: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first piece no row is valid, and the next is slow to read as what comes first is: they do not count."""
    clock, read_pieces = Clock(), extraction.valid_pieces

    def slow_at_first(*given):
        for number, piece in enumerate(read_pieces(*given)):
            clock.now += 1 if number else 1000
            yield from (piece,) if number else (piece.slice(0, 0), piece)

    monkeypatch.setattr(extraction, "SAMPLE_ROWS", 500)
    monkeypatch.setattr(extraction, "time", clock)
    monkeypatch.setattr(extraction, "valid_pieces", slow_at_first)
    moment = np.arange(288)
    fixes = {
        "agent_id": np.zeros(288, np.int64),
        "time": pa.array(1_704_067_200_000_000 + moment * 600_000_000, TIMESTAMP),
        "lat": np.where(moment % 144 > 72, 60.1, 60.0),
        "lon": np.full(288, 25.0),
    }
    (tmp_path / "fixes").mkdir()
    for number in range(30):
        table = pa.table({**fixes, "agent_id": np.full(288, number)})
        pq.write_table(table, tmp_path / "fixes" / f"{number:02}.parquet")
    told = extraction.extract(tmp_path / "fixes", tmp_path / "told", timezone="UTC")
    assert said.getvalue().count("about 8,640 fixes: about 30 seconds") == 1
    with progress.silence():
        untold = extraction.extract(tmp_path / "fixes", tmp_path / "untold", timezone="UTC")
    assert read(tmp_path / "told", "stays").equals(read(tmp_path / "untold", "stays"))
    assert (told.notes, told.dropped) == (untold.notes, untold.dropped)


def test_a_search_says_how_long(
    said: io.StringIO, town, network_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ustad.lab.search_network.tune", lambda *given, **options: options)
    options: Any = search(Detector(network_config, device="cpu"), town, tmp_path, 40)
    assert (options["trials"], options["directory"]) == (40, tmp_path)
    assert re.search(rf"40 trials on \d+ windows: {LONG} in all", said.getvalue())
