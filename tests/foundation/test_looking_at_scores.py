"""Scores in a notebook: the most unusual first, as a DataFrame, as a picture."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ustad.scores import Scores
from ustad.tables import TIMESTAMP, DataError


@pytest.fixture
def scores() -> Scores:
    score = np.array([0.2, 3.0, 1.0, 3.0, 0.1])
    events = pa.table(
        {
            "stay_id": np.arange(5),
            "agent_id": ["a", "b", "a", "a", "b"],
            "started_at": pa.array(np.arange(5) * 3_600_000_000 + 1_704_067_200_000_000).cast(TIMESTAMP),
            "score": score,
            "alert": score > 2,
        }
    )
    return Scores(events, pa.table({"agent_id": ["a", "b"], "score": [1.0, 2.0]}))


def test_the_top_are_the_highest_and_ties_keep_their_order(scores):
    assert scores.top(3)["stay_id"].to_pylist() == [1, 3, 2]
    assert scores.top(99).num_rows == 5
    assert Scores(agents=scores.agents).top(1)["agent_id"].to_pylist() == ["b"]
    with pytest.raises(DataError, match="no scores here"):
        Scores().top()


def test_a_data_frame_has_the_rows_of_the_table(scores):
    pytest.importorskip("pandas")
    frame = scores.to_pandas()
    assert frame["stay_id"].tolist() == [0, 1, 2, 3, 4]
    assert str(frame["started_at"].dt.tz) == "UTC"


def test_a_plot_shows_an_agents_scores_and_marks_alerts(scores):
    pytest.importorskip("matplotlib").use("Agg")
    lines = scores.plot(agent="a").lines
    assert lines[0].get_ydata().tolist() == [0.2, 1.0, 3.0]
    assert lines[1].get_ydata().tolist() == [3.0]
    with pytest.raises(DataError, match="over time"):
        Scores(agents=scores.agents).plot()
