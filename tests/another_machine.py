"""Another machine, simulated: what numpy and math compute differs in the last bit or two, by a seed.

    with another_machine(seed=1): ...                           inside a test
    pytest --another-machine 1 tests/scoring/test_moving_live.py   whole files of tests

Inside, `np` and `math` of ustad's modules are stand-ins whose logarithms, powers, angles and sums are moved by up to
two units in the last place: as a real machine's they are a function of the result, another one for each function, and
for one value another than for many. Results that every library gets exactly (0, 1, whole sums) stay. Compiled loops see
the real numpy:
`tests/scoring/test_machines.py` runs those for another processor.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

ULPS = 2
FUNCTIONS = ("log10", "log", "log1p", "exp", "expm1", "power", "sin", "cos", "arctan2", "hypot")
SUMS = ("sum", "dot", "mean", "bincount", "cumsum")
IN_MATH = ("log10", "log", "log1p", "exp", "expm1", "pow", "sin", "cos", "atan2", "hypot")
#: Rooms whose modules are all there before they are changed.
ROOMS = ("ustad.detector", "ustad.live.habit_live", "ustad.live.network_live", "ustad.live.one_row")


class Stand:
    """A library with some functions replaced."""

    def __init__(self, real: ModuleType, changed: dict[str, Callable[..., Any]]) -> None:
        self.real, self.changed = real, changed

    def __getattr__(self, name: str) -> Any:
        return self.changed[name] if name in self.changed else getattr(self.real, name)


def moved(function: Callable[..., Any], salt: int, is_sum: bool) -> Callable[..., Any]:
    """The function with its floating results a few units in the last place off."""

    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        values = np.asarray(result)
        if values.dtype.kind != "f":
            return result
        with np.errstate(invalid="ignore", over="ignore"):
            exact = ~np.isfinite(values) | (values == np.round(values) if is_sum else (values == 0) | (values == 1))
            steps = (hash_values(values, salt) % np.uint64(2 * ULPS + 1)).astype(values.dtype) - ULPS
            noisy = np.where(exact, values, values + steps * np.spacing(np.abs(values)))
        return float(noisy) if isinstance(result, float) else noisy[()]

    return call


def hash_values(values: np.ndarray, salt: int) -> np.ndarray:
    """A number of each value and the salt that looks like chance: uint64."""
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64).reshape(values.shape)
    mixed = (bits ^ np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(31))


def stands(seed: int) -> dict[str, Stand]:
    salts = iter(np.random.default_rng(seed).integers(0, 2**62, 64).tolist())
    changed = {name: moved(getattr(np, name), next(salts), name in SUMS) for name in (*FUNCTIONS, *SUMS)}
    scalar = {name: moved(getattr(math, name), next(salts), False) for name in IN_MATH}
    return {"np": Stand(np, changed), "math": Stand(math, scalar)}


def change_modules(made: dict[str, Stand]) -> list[tuple[ModuleType, str]]:
    """Put the stand-ins into every module of ustad that compiles nothing; returns where."""
    places = []
    for module in [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "ustad" and m]:
        own = [v for v in vars(module).values() if isinstance(v, Dispatcher) and v.__module__ == module.__name__]
        for name, stand in made.items():
            if not own and vars(module).get(name) is stand.real:
                setattr(module, name, stand)
                places.append((module, name))
    return places


@contextmanager
def another_machine(seed: int) -> Iterator[None]:
    for room in ROOMS:
        importlib.import_module(room)
    made = stands(seed)
    places = change_modules(made)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, made[name].real)
