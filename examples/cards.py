"""Card payments with fraud: `python examples/cards.py` (three seeds, some minutes) or `--small` (seconds).

Every card has its shops, its hours and its level of spending. In the test weeks some cards are stolen. A *burst* is
a handful of payments within an hour or two, in kinds of shop that other cards visit every day; a *quiet* fraud is
one or two ordinary-looking payments in an ordinary hour. Neither is strange in itself: it is strange for that card.
"""

# %% The cells below can be run one by one in an editor that knows `# %%`.
from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comparison import run_example
from ustad.tables import TIMESTAMP

FIRST = np.datetime64("2024-03-04T00:00", "us")  # a Monday
KINDS = ("groceries", "bakery", "fuel", "restaurant", "bar", "clothes", "electronics", "pharmacy", "travel", "games")
AMOUNT = np.log([38, 6, 52, 31, 17, 55, 140, 18, 190, 24])  # EUR, median of each kind
HOUR = np.array([17.5, 8.0, 18.0, 19.5, 22.0, 15.0, 14.0, 11.0, 20.0, 21.0])  # by the clock of ZONE
ZONE = "Europe/Paris"  # where the cards are used: its clocks go forward on 31 March
ONLINE = np.array([0.05, 0.0, 0.0, 0.1, 0.0, 0.4, 0.6, 0.05, 0.9, 0.95])
SHOPS = 25  # merchants of each kind


# %% Ordinary payments
def ordinary(rng: np.random.Generator, cards: int, days: int) -> dict[str, np.ndarray]:
    """Payments of cards with their own shops, hours and levels."""
    taste = rng.dirichlet(np.full(len(KINDS), 0.4), cards).cumsum(axis=1)
    level, shift = rng.normal(0, 0.45, cards), rng.normal(0, 1.2, cards)
    card = np.repeat(np.arange(cards), rng.poisson(rng.gamma(4, 0.4, cards) * days))
    kind = (rng.random(len(card))[:, None] > taste[card]).sum(axis=1).clip(0, len(KINDS) - 1)
    hour = np.clip(HOUR[kind] + shift[card] + rng.normal(0, 1.4, len(card)), 0, 23.99)
    favourite = rng.integers(0, SHOPS, (cards, len(KINDS), 2))
    elsewhere = rng.integers(0, SHOPS, len(card))
    dice = rng.random(len(card))
    shop = np.where(dice < 0.7, favourite[card, kind, 0], np.where(dice < 0.92, favourite[card, kind, 1], elsewhere))
    return {
        "card": card,
        "minute": rng.integers(0, days, len(card)) * 1440 + hour * 60,
        "kind": kind,
        "shop": shop,
        "amount": np.exp(AMOUNT[kind] + level[card] + rng.normal(0, 0.3, len(card))),
        "online": rng.random(len(card)) < ONLINE[kind],
        "fraud": np.full(len(card), "", dtype=object),
    }


# %% Fraud
def fraud(rng: np.random.Generator, cards: int, days: int, how: str) -> dict[str, np.ndarray]:
    """Payments by somebody else with some of the cards, in the second half of the days."""
    stolen = rng.choice(cards, max(2, round(0.05 * cards)), replace=False)
    size = rng.integers(3, 7, len(stolen)) if how == "burst" else rng.integers(1, 3, len(stolen))
    card = np.repeat(stolen, size)
    start = rng.integers(days // 2 * 24, (days - 1) * 24, len(stolen)) * 60.0
    gap = rng.exponential(18.0 if how == "burst" else 1500.0, len(card))
    within = np.arange(len(card)) - np.repeat(np.cumsum(size) - size, size)
    kind = rng.integers(0, len(KINDS), len(card))
    hour = np.clip(HOUR[kind] + rng.normal(0, 2, len(card)), 0, 23.99)
    moment = np.repeat(start, size) + gap * within
    return {
        "card": card,
        "minute": moment if how == "burst" else moment // 1440 * 1440 + hour * 60,
        "kind": kind,
        "shop": rng.integers(0, SHOPS, len(card)),
        "amount": np.exp(AMOUNT[kind] + rng.normal(0.2, 0.5, len(card))),
        "online": rng.random(len(card)) < np.maximum(ONLINE[kind], 0.3),
        "fraud": np.full(len(card), how, dtype=object),
    }


# %% Tables
def simulate(seed: int, small: bool = False) -> tuple[pa.Table, pa.Table]:
    """Payments and the labels of the fraudulent ones."""
    rng = np.random.default_rng([seed, 1])
    cards, days = (30, 24) if small else (80, 56)
    parts = [ordinary(rng, cards, days), fraud(rng, cards, days, "burst"), fraud(rng, cards, days, "quiet")]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((rows["minute"], rows["card"]))
    rows = {name: values[order] for name, values in rows.items()}
    clock = pa.array(FIRST + (rows["minute"] * 60e6).astype("timedelta64[us]"))
    moment = pc.assume_timezone(clock, ZONE, ambiguous="earliest", nonexistent="latest")
    identity = pa.array(np.arange(len(order)))
    names = np.array([f"{kind} {i}" for kind in KINDS for i in range(SHOPS)])
    events = pa.table(
        {
            "payment_id": identity,
            "card_id": pa.array(np.char.add("card ", rows["card"].astype(str))),
            "paid_at": moment.cast(TIMESTAMP),
            "amount": rows["amount"].round(2),
            "category": pa.array(np.array(KINDS)[rows["kind"]]),
            "merchant": pa.array(names[rows["kind"] * SHOPS + rows["shop"]]),
            "channel": pa.array(np.where(rows["online"], "online", "card reader")),
        }
    )
    is_fraud = pa.array(rows["fraud"] != "")
    labels = pa.table({"payment_id": identity, "anomaly": is_fraud, "kind": pa.array(rows["fraud"], pa.string())})
    return events, labels.filter(is_fraud)


# %% Train, score, compare, report
if __name__ == "__main__":
    run_example("cards", simulate, {"window.unit": "events", "window.length": 24}, __doc__ or "")
