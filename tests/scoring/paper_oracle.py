"""The paper's score in plain NumPy, double precision, one event at a time: what the product's must equal.

Written from the equations: tokens of the fields, dropout from the counter, two Transformers, heads, the two
uncertainties, the loss of each feature, neighbours, percentiles, their maximum. Windows, encoded values and the keys of
events are inputs: they have oracles of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import erf
from test_counter import plain_keep, plain_normal

from ustad.events.encoder import EventArrays

#: Departures that docs/method.md lists: bounds of a log-variance.
LOW, HIGH = -9.0, 4.0


@dataclass
class Terms:
    """Of one event: loss L', AU and EU by feature, NaN where the truth is missing."""

    loss: dict[str, float]
    au: dict[str, float]
    eu: dict[str, float]


class PaperOracle:
    """A network by its weights. `terms` are (name, kind, fields) as the schema has them."""

    def __init__(self, weights: Mapping[str, np.ndarray], arrays: EventArrays, terms, heads, *, rate: float, seed: int):
        self.weights = {name: np.asarray(values, np.float64) for name, values in weights.items()}
        self.arrays, self.terms, self.heads, self.rate, self.seed = arrays, terms, heads, rate, seed
        self.width = self.weights["masked_token"].shape[0]
        self.kinds = {kind: [f for f in arrays.fields if f.kind == kind] for kind in ("number", "category", "vector")}
        self.order = [f.name for f in arrays.fields]
        self.vectors: dict[tuple[int, int | None], np.ndarray] = {}  # of events that several windows show

    # ------------------------------------------------------------------------------------------- network
    def tokens(self, event: int) -> np.ndarray:
        """[F, D]: numbers, then categories, then vectors; a missing field has a token of its own."""
        w, a = self.weights, self.arrays
        rows = [a.numbers[event, i] * w["tokenizer.weight"][i] + w["tokenizer.bias"][i]
                for i in range(len(self.kinds["number"]))]  # fmt: skip
        first = 0
        for i, field in enumerate(self.kinds["category"]):
            rows.append(w["tokenizer.table"][first + a.categories[event, i]])
            first += field.size
        first = 0
        for i, field in enumerate(self.kinds["vector"]):
            vector = a.vectors[event, first : first + field.size].astype(np.float64)
            rows.append(w[f"tokenizer.vectors.{i}.weight"] @ vector + w[f"tokenizer.vectors.{i}.bias"])
            first += field.size
        return np.where(a.missing[event][:, None], w["tokenizer.missing"], np.stack(rows))

    def keep(self, event: int, t: int) -> np.ndarray:
        """The dropout mask of sample t: [F, D]."""
        key = int(self.arrays.key[event])
        return np.array([[plain_keep(key, self.seed, t, f, d, self.rate) for d in range(self.width)]
                         for f in range(len(self.order))])  # fmt: skip

    def normalise(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        ratio = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return ratio * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def block(self, x: np.ndarray, name: str) -> np.ndarray:
        """A Transformer block on one sequence [L, D]."""
        D, d = self.width, self.width // self.heads
        q, k, v = np.split(self.linear(self.normalise(x, f"{name}.norm_attention"), f"{name}.attention.qkv"), 3, axis=1)
        mixture = np.zeros((len(x), D))
        for head in range(self.heads):
            own = slice(head * d, head * d + d)
            logits = q[:, own] @ k[:, own].T / math.sqrt(d)
            mixture[:, own] = softmax(logits) @ v[:, own]
        x = x + self.linear(mixture, f"{name}.attention.out")
        inner = self.linear(self.normalise(x, f"{name}.norm_forward"), f"{name}.forward_in")
        gelu = 0.5 * inner * (1 + erf(inner / math.sqrt(2)))
        return x + self.linear(gelu, f"{name}.forward_out")

    def embed(self, event: int, t: int | None) -> np.ndarray:
        """Feature level: the event's vector [D] in sample t, without dropout where t is None."""
        if (event, t) in self.vectors:
            return self.vectors[event, t]
        x = self.tokens(event) if t is None else self.tokens(event) * self.keep(event, t)
        for i in range(self.count("feature_blocks")):
            x = self.block(x, f"feature_blocks.{i}")
        self.vectors[event, t] = x.sum(0)
        return self.vectors[event, t]

    def hidden(self, events: np.ndarray, target: int, t: int | None) -> np.ndarray:
        """Event level: the target's state [D], hidden behind the learned token, among the events of its window."""
        w, rows = self.weights, []
        for place, event in enumerate(events):
            vector = w["masked_token"] if event == target else self.embed(int(event), t)
            within = sum(1 for other in self.same_day(event) if other < event)
            rows.append(vector + w["position.weight"][place] + w["day_position.weight"][within])
        x = np.stack(rows)
        for i in range(self.count("event_blocks")):
            x = self.block(x, f"event_blocks.{i}")
        return self.normalise(x, "norm")[list(events).index(target)]

    def count(self, level: str) -> int:
        return len({name.split(".")[1] for name in self.weights if name.startswith(level)})

    # ------------------------------------------------------------------------------------------- windows
    def same_day(self, event: int) -> np.ndarray:
        a = self.arrays
        return np.flatnonzero((a.entity == a.entity[event]) & (a.day == a.day[event]))

    def window(self, event: int, days: int) -> np.ndarray:
        """The events of the same entity on the event's day and so many days before."""
        a = self.arrays
        own = (a.entity == a.entity[event]) & (a.day >= a.day[event] - days) & (a.day <= a.day[event])
        return np.flatnonzero(own)

    # -------------------------------------------------------------------------------------- predictions
    def predict(self, hidden: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """What is expected of every field, and log σ² (of a category log σ): classes without `unknown`."""
        out = self.linear(hidden, "heads.linear")
        sizes = [*[1] * len(self.kinds["number"]), *[f.size - 1 for f in self.kinds["category"]]]
        means = cut(out, [*sizes, *[f.size for f in self.kinds["vector"]]])
        spreads = cut(out[sum(len(m) for m in means) :], [*sizes, *[1] * len(self.kinds["vector"])])
        names = [f.name for kind in self.kinds.values() for f in kind]
        half = {f.name for f in self.kinds["category"]}
        return {
            name: (mean, smooth_clamp(spread, LOW / 2, HIGH / 2) if name in half else smooth_clamp(spread, LOW, HIGH))
            for name, mean, spread in zip(names, means, spreads, strict=True)
        }

    def truth(self, event: int, name: str) -> np.ndarray | float | int:
        a = self.arrays
        for values, kind in ((a.numbers, "number"), (a.categories, "category")):
            names = [f.name for f in self.kinds[kind]]
            if name in names:
                return values[event, names.index(name)]
        ends = np.cumsum([0, *[f.size for f in self.kinds["vector"]]])
        i = [f.name for f in self.kinds["vector"]].index(name)
        return a.vectors[event, ends[i] : ends[i + 1]].astype(np.float64)

    def measure(self, event: int, days: int, samples: int) -> Terms:
        """Losses and uncertainties of an event from T samples."""
        window = self.window(event, days)
        passes = [self.predict(self.hidden(window, event, t)) for t in range(samples)]
        terms = Terms({}, {}, {})
        for name, kind, fields in self.terms:
            loss, au, eu = getattr(self, f"_{kind}")(event, fields, passes)
            missing = any(self.arrays.missing[event, self.order.index(field)] for field in fields)
            terms.loss[name] = math.nan if missing else loss
            terms.au[name] = math.nan if missing and kind == "category" else au
            terms.eu[name] = eu
        return terms

    def _number(self, event, fields, passes):
        means = np.array([one[fields[0]][0][0] for one in passes])
        variance = np.mean([np.exp(one[fields[0]][1][0]) for one in passes])
        return (float(self.truth(event, fields[0])) - means.mean()) ** 2 / (2 * variance), variance, means.var()

    def _angle(self, event, fields, passes):
        x, y = (np.array([one[field][0][0] for one in passes]) for field in fields)
        variance = np.mean([np.exp(one[field][1][0]) for one in passes for field in fields])
        centre = math.atan2(y.mean(), x.mean())
        off = wrap(math.atan2(self.truth(event, fields[1]), self.truth(event, fields[0])) - centre)
        return off**2 / (2 * variance), variance, np.mean(wrap(np.arctan2(y, x) - centre) ** 2)

    def _vector(self, event, fields, passes):
        means = np.array([one[fields[0]][0] for one in passes])
        variance = np.mean([np.exp(one[fields[0]][1][0]) for one in passes])
        square = np.mean((self.truth(event, fields[0]) - means.mean(0)) ** 2)
        return square / (2 * variance), variance, means.var(0).mean()

    def _category(self, event, fields, passes):
        code, key, place = int(self.truth(event, fields[0])), int(self.arrays.key[event]), self.order.index(fields[0])
        plain = np.mean([softmax(one[fields[0]][0]) for one in passes], axis=0)
        entropy = -np.sum(plain * np.log(plain))
        if code == 0:  # unknown is never a target
            return math.nan, math.nan, entropy
        chances = []
        for t, one in enumerate(passes):
            logits, log_sigma = one[fields[0]]
            noise = [plain_normal(key, self.seed, t, place, which + 1) for which in range(len(logits))]
            chances.append(softmax(logits + np.exp(log_sigma) * np.array(noise))[code - 1])
        variance = np.mean([np.exp(2 * one[fields[0]][1][code - 1]) for one in passes])
        return -math.log(np.mean(chances)), variance, entropy


# ---------------------------------------------------------------------------------------------- scores
def neighbour_distance(query: np.ndarray, reference: np.ndarray, k: int) -> float:
    """Mean distance to the k nearest of the training events."""
    return float(np.sort(np.sqrt(((reference - query) ** 2).sum(1)))[:k].mean())


def share_above(value: float, column: np.ndarray) -> float:
    """The share of a column above a value, ties counted half: 1 − the paper's percentile."""
    others = column[~np.isnan(column)]
    above, equal = (others > value).sum(), (others == value).sum()
    return (above + equal / 2 + 0.5) / (len(others) + 1)


def score_by_ranks(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """−log₁₀ of the smallest share, over losses and distance: values [n, K] among columns [m, K]."""
    return np.array([
        max((-math.log10(share_above(v, columns[:, i])) for i, v in enumerate(row) if not math.isnan(v)), default=0.0)
        for row in values
    ])  # fmt: skip


def tail_p(value: float, normal: np.ndarray) -> float:
    """log₁₀ of the chance that a normal score is so high: counted, above the highest quarter (30 at most) by a Pareto
    tail that is fitted by probability-weighted moments."""
    n = len(normal)
    ascending = np.sort(normal)
    exceed = int(min(max(0.02 * n, 30), max(1, n // 4)))
    threshold = ascending[-exceed - 1]
    if value <= threshold * (1 + 1e-9) + 1e-12:
        return math.log10((1 + (ascending >= value * (1 - 1e-9) - 1e-12).sum()) / (n + 1))
    excess = ascending[ascending > threshold * (1 + 1e-9) + 1e-12] - threshold
    m, mean = len(excess), excess.mean() if len(excess) else 0.0
    moment = sum(x * (m - i) for i, x in enumerate(excess, 1)) / (m * max(m - 1, 1)) if m else 0.0
    shape = min(max(2 - mean / (mean - 2 * moment), 0.0), 0.9) if m >= 10 and mean > 2 * moment else 0.0
    scale = max(mean * (1 - shape) if m else float(ascending.std()), 0.1 * abs(threshold), 1e-9)
    ratio = (value - threshold) / scale
    decay = math.log1p(shape * ratio) / shape if shape > 1e-6 else ratio
    tail = math.log10((1 + m) / (n + 1)) - decay / math.log(10)
    limit = -math.log10(n + 1) - 2 * max(0.0, math.log10(n / 30))
    return tail if tail >= limit else limit - 0.5 * math.log1p(limit - tail)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def smooth_clamp(raw: np.ndarray, low: float, high: float) -> np.ndarray:
    above = low + np.logaddexp(0, raw - low)
    return high - np.logaddexp(0, high - above)


def wrap(angle):
    return (angle + math.pi) % (2 * math.pi) - math.pi


def cut(values: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    ends = np.cumsum([0, *sizes])
    return [values[first:last] for first, last in itertools.pairwise(ends)]
