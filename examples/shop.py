"""A shop's clicks and orders with bots: `python examples/shop.py` (three seeds, some minutes) or `--small` (seconds).

Visitors come, look at pages of the departments they like, and sometimes order. In the test weeks some accounts are
used by programs. A *scraper* opens product pages of all departments at an even, human speed; a *hoarder* fills the
cart over and over and never orders. Every single click is one that people make too.
"""

# %% The cells below can be run one by one in an editor that knows `# %%`.
from __future__ import annotations

import numpy as np
import pyarrow as pa

from comparison import run_example
from ustad.tables import TIMESTAMP

FIRST = np.datetime64("2024-03-04T00:00", "us")
PAGES = ("home", "search", "product", "cart", "order", "help")
HOME, SEARCH, PRODUCT, CART, ORDER, HELP = range(6)
#: Where people go from each page.
STEPS = np.array(
    [
        [0.05, 0.45, 0.40, 0.02, 0.0, 0.08],
        [0.03, 0.25, 0.68, 0.02, 0.0, 0.02],
        [0.05, 0.22, 0.45, 0.25, 0.0, 0.03],
        [0.05, 0.15, 0.35, 0.05, 0.38, 0.02],
        [0.60, 0.25, 0.10, 0.0, 0.0, 0.05],
        [0.45, 0.35, 0.15, 0.0, 0.0, 0.05],
    ]
).cumsum(axis=1)
PAUSE = np.log([9.0, 12.0, 26.0, 20.0, 45.0, 50.0])  # seconds on each page, median
DEPARTMENTS = ("books", "garden", "kitchen", "music", "sport", "toys", "tools", "clothes")
PRICE = np.log([14, 25, 40, 18, 60, 22, 48, 35])  # EUR, median


# %% People
def people(rng: np.random.Generator, visitors: int, days: int) -> dict[str, np.ndarray]:
    """Clicks of people: sessions at their own hours, in the departments they like."""
    taste = rng.dirichlet(np.full(len(DEPARTMENTS), 0.35), visitors).cumsum(axis=1)
    evening, pace = rng.normal(18, 3, visitors), rng.normal(0, 0.25, visitors)
    visitor = np.repeat(np.arange(visitors), rng.poisson(rng.gamma(4, 0.08, visitors) * days))
    size = 2 + rng.geometric(0.16, len(visitor)).clip(max=25)
    start = rng.integers(0, days, len(visitor)) * 86400.0 + (evening[visitor] + rng.normal(0, 2, len(visitor))) * 3600
    session = np.repeat(np.arange(len(visitor)), size)
    page = walk(rng, len(visitor), int(size.max()))[session, _within(size)]
    likes = (rng.random(len(visitor))[:, None] > taste[visitor]).sum(axis=1).clip(0, len(DEPARTMENTS) - 1)
    wanders = rng.random(len(session)) < 0.06
    department = np.where(wanders, rng.integers(0, len(DEPARTMENTS), len(session)), likes[session])
    pause = np.exp(PAUSE[page] + pace[visitor[session]] + rng.normal(0, 0.7, len(session)))
    return _clicks(rng, visitor[session], page, department, start[session] + _since_start(pause, size), "")


def walk(rng: np.random.Generator, sessions: int, length: int) -> np.ndarray:
    """Pages of all sessions at once, one step after the other: int [sessions, length]."""
    page = np.empty((sessions, length), np.int64)
    page[:, 0] = np.where(rng.random(sessions) < 0.6, HOME, SEARCH)
    for step in range(1, length):
        page[:, step] = (rng.random(sessions)[:, None] > STEPS[page[:, step - 1]]).sum(axis=1).clip(0, 5)
    return page


# %% Bots
def bots(rng: np.random.Generator, visitors: int, days: int, how: str) -> dict[str, np.ndarray]:
    """Clicks of programs with some of the accounts, in the second half of the days."""
    used = rng.choice(visitors, max(2, round(0.04 * visitors)), replace=False)
    size = rng.integers(15, 40, len(used))
    start = rng.uniform(days / 2 + 0.1, days - 1, len(used)) * 86400.0
    session = np.repeat(np.arange(len(used)), size)
    dice = rng.random(len(session))
    if how == "scraper":
        page = np.where(dice < 0.85, PRODUCT, SEARCH)
        department = _within(size) % len(DEPARTMENTS)
        pause = np.exp(rng.normal(np.log(11), 0.08, len(session)))
    else:
        page = np.where(dice < 0.5, CART, PRODUCT)
        department = rng.integers(0, len(DEPARTMENTS), len(used))[session]
        pause = np.exp(PAUSE[page] + rng.normal(0, 0.7, len(session)))
    return _clicks(rng, used[session], page, department, start[session] + _since_start(pause, size), how)


# %% Tables
def simulate(seed: int, small: bool = False) -> tuple[pa.Table, pa.Table]:
    """Clicks and the labels (by visitor and time) of those that programs made."""
    rng = np.random.default_rng([seed, 2])
    visitors, days = (30, 24) if small else (60, 56)
    parts = [people(rng, visitors, days), bots(rng, visitors, days, "scraper"), bots(rng, visitors, days, "hoarder")]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((rows["second"], rows["visitor"]))
    rows = {name: values[order] for name, values in rows.items()}
    priced = np.isin(rows["page"], (PRODUCT, CART, ORDER))
    clicks = pa.table(
        {
            "visitor_id": pa.array(rows["visitor"]),
            "clicked_at": pa.array(FIRST + (rows["second"] * 1e6).astype("timedelta64[us]")).cast(TIMESTAMP),
            "page": pa.array(np.array(PAGES)[rows["page"]]),
            "department": pa.array(np.array(DEPARTMENTS)[rows["department"]]),
            "price": pa.array(rows["price"].round(2), mask=~priced),
        }
    )
    is_bot = pa.array(rows["bot"] != "")
    labels = clicks.select(["visitor_id", "clicked_at"]).append_column("anomaly", is_bot)
    return clicks, labels.append_column("kind", pa.array(rows["bot"], pa.string())).filter(is_bot)


def _clicks(
    rng: np.random.Generator,
    visitor: np.ndarray,
    page: np.ndarray,
    department: np.ndarray,
    second: np.ndarray,
    bot: str,
) -> dict[str, np.ndarray]:
    price = np.exp(PRICE[department] + rng.normal(0, 0.5, len(page)))
    named = np.full(len(page), bot, dtype=object)
    return {
        "visitor": visitor, "page": page, "department": department, "second": second, "price": price, "bot": named,
    }  # fmt: skip


def _within(size: np.ndarray) -> np.ndarray:
    """0, 1, 2, … within each session."""
    return np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)


def _since_start(pause: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Seconds from a session's first click to each of its clicks."""
    total = np.cumsum(pause) - pause
    return total - np.repeat(total[np.cumsum(size) - size], size)


# %% Train, score, compare, report
if __name__ == "__main__":
    run_example("shop", simulate, {"window.unit": "sessions", "window.length": 4}, __doc__ or "")
