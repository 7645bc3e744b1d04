"""An app's usage with a behaviour shift: `python examples/app_usage.py` (some minutes) or `--small` (seconds).

Every user has favourite screens, hours and a device. In the test weeks some accounts are used by somebody else for a
few days (*shared*: other hours and other screens) and some users change their hours only (*hours*). Windows here are
days, as in the paper, because the app is opened several times a day.
"""

# %% The cells below can be run one by one in an editor that knows `# %%`.
from __future__ import annotations

import numpy as np
import pyarrow as pa

from comparison import run_example
from ustad.tables import TIMESTAMP

FIRST = np.datetime64("2024-03-04T00:00", "us")
SCREENS = ("feed", "messages", "camera", "profile", "search", "settings", "shop", "games", "live", "groups", "maps")
STAY = np.log([6, 2, 1.5, 1, 1, 0.7, 4, 15, 12, 5, 2])  # minutes on each screen, median
DEVICES = ("phone", "tablet", "browser")


# %% Users
def users(rng: np.random.Generator, count: int, days: int) -> dict[str, np.ndarray]:
    """Visits of all users, and for each user what the shifts below need."""
    taste = rng.dirichlet(np.full(len(SCREENS), 0.5), count).cumsum(axis=1)
    peaks = rng.uniform(6, 23, (count, 2))
    device = rng.dirichlet(np.full(len(DEVICES), 0.25), count).cumsum(axis=1)
    user = np.repeat(np.arange(count), rng.poisson(rng.gamma(5, 0.8, count) * days))
    day = rng.integers(0, days, len(user))
    peak = peaks[user, (rng.random(len(user)) < 0.6).astype(int)]
    return {
        "user": user,
        "day": day,
        "hour": peak + rng.normal(0, 1.3, len(user)),
        "screen": _draw(rng, taste[user]),
        "device": _draw(rng, device[user]),
        "shift": np.full(len(user), "", dtype=object),
        "other_screen": _draw(rng, taste[(user + 1) % count]),
        "other_device": _draw(rng, device[(user + 1) % count]),
    }


# %% Shifts
def shift(rng: np.random.Generator, rows: dict[str, np.ndarray], count: int, days: int) -> None:
    """Change some users for five days of the second half, in place."""
    chosen = rng.choice(count, max(4, round(0.1 * count)), replace=False)
    begin = np.full(count, 10**6)
    begin[chosen] = rng.integers(days // 2, days - 4, len(chosen))
    how = np.full(count, "", dtype=object)
    how[chosen] = np.where(np.arange(len(chosen)) % 2 == 0, "shared", "hours")
    hours = rng.uniform(6, 10, count)
    inside = (rows["day"] >= begin[rows["user"]]) & (rows["day"] < begin[rows["user"]] + 5)
    shared = inside & (how[rows["user"]] == "shared")
    rows["hour"] = np.where(inside, rows["hour"] + hours[rows["user"]], rows["hour"])
    rows["screen"] = np.where(shared, rows["other_screen"], rows["screen"])
    rows["device"] = np.where(shared, rows["other_device"], rows["device"])
    rows["shift"] = np.where(inside, how[rows["user"]], rows["shift"])


# %% Tables
def simulate(seed: int, small: bool = False) -> tuple[pa.Table, pa.Table]:
    """Screen visits and the labels of those within a shift."""
    rng = np.random.default_rng([seed, 3])
    count, days = (24, 24) if small else (40, 56)
    rows = users(rng, count, days)
    shift(rng, rows, count, days)
    minute = rows["day"] * 1440 + (rows["hour"] % 24) * 60
    order = np.lexsort((minute, rows["user"]))
    rows, minute = {name: values[order] for name, values in rows.items()}, minute[order]
    length = np.exp(STAY[rows["screen"]] + rng.normal(0, 0.5, len(order)))
    identity = pa.array(np.arange(len(order)))
    visits = pa.table(
        {
            "visit_id": identity,
            "user_id": pa.array(rows["user"]),
            "opened_at": _moments(minute),
            "closed_at": _moments(minute + length),
            "screen": pa.array(np.array(SCREENS)[rows["screen"]]),
            "device": pa.array(np.array(DEVICES)[rows["device"]]),
        }
    )
    shifted = pa.array(rows["shift"] != "")
    labels = pa.table({"visit_id": identity, "anomaly": shifted, "kind": pa.array(rows["shift"], pa.string())})
    return visits, labels.filter(shifted)


def _draw(rng: np.random.Generator, cumulative: np.ndarray) -> np.ndarray:
    """A class for each row of cumulative shares [n, classes]."""
    return (rng.random(len(cumulative))[:, None] > cumulative).sum(axis=1).clip(0, cumulative.shape[1] - 1)


def _moments(minute: np.ndarray) -> pa.Array:
    return pa.array(FIRST + (minute * 60e6).astype("timedelta64[us]")).cast(TIMESTAMP)


# %% Train, score, compare, report
if __name__ == "__main__":
    run_example("app_usage", simulate, {"window.unit": "days", "window.length": 7}, __doc__ or "")
