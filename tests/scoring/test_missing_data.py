"""Missing data never raises a score by itself: the same normal days with fewer fixes have no more alerts."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ustad.config import ExtractionConfig
from ustad.dataset import event_days, load_directory
from ustad.judges import learn_from
from ustad.mobility.extraction import extract_tables
from ustad.schema import mobility_schema
from ustad.simulate import simulate

SCHEMA = mobility_schema("none", 16, True)
DAYS, HOUR = 21, 3_600_000_000


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A model of two normal weeks, the fixes of these and a third, and how stays are made of them."""
    place = tmp_path_factory.mktemp("town")
    simulate("town", 8, 5, place, fixes="60s", days=DAYS, anomalous_share=0.0)
    truth, fixes = load_directory(place), pq.read_table(place / "fixes")

    def extract(some):
        stays = extract_tables(some, ExtractionConfig(), pois=truth.pois, timezone=truth.meta["timezone"]).events
        return stays, event_days(stays, SCHEMA)

    stays, day = extract(fixes)
    first = int(day.min())
    parts = [stays.filter(pa.array((day >= first + a) & (day < first + b))) for a, b in ((0, 7), (7, 14))]
    return learn_from(*parts, SCHEMA), fixes, extract, first + 14


def scores_of(town, kept):
    model, fixes, extract, since = town
    stays, day = extract(fixes.filter(pa.array(kept)))
    return model.judge(stays.filter(pa.array(day >= since))).score


def cases(fixes, since):
    """Which fixes are left: a half, without some hours, half days or days."""
    rng = np.random.default_rng(3)
    time = fixes["time"].cast(pa.int64()).to_numpy()
    agent = np.unique(fixes["agent_id"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    before = time < since * 24 * HOUR
    yield "half", before | (rng.random(len(time)) < 0.5)
    for hours, share in ((1, 0.2), (3, 0.3), (12, 0.2), (24, 0.2)):
        block = (time // (hours * HOUR)) % 10_000
        gone = rng.random((agent.max() + 1, 10_000)) < share
        yield f"{hours} h", before | ~gone[agent, block]


def test_deleting_fixes_of_normal_days_makes_no_more_alerts(town):
    _, fixes, _, since = town
    whole = scores_of(town, np.ones(fixes.num_rows, bool))
    for name, kept in cases(fixes, since):
        score = scores_of(town, kept)
        for level in (1.5, 2.0, 3.0):
            assert (score > level).sum() <= (whole > level).sum() + 1, (name, level)
        assert score.sum() <= whole.sum() + 1, name
