"""`--red-team second` of `ustad simulate` and `ustad inject`: who plans and hides is made by the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ustad.cli.shared import choose


def make_team(kind: str, size: float) -> Any:
    """For a simulation: one kind of the second red team or all, of that size."""
    from ustad.lab.red_team import SecondTeam

    return SecondTeam(kind, size)


def inject_second(data: Path, kind: str, share: float, seed: int, **wishes: Any) -> Any:
    """Read a data set and put the second red team into it; `wishes` as `second_red_team` has them."""
    from ustad.lab.red_team import KINDS, second_red_team
    from ustad.mobility.readers import open_data

    choose(kind, (*KINDS, "all"), "--kind")
    return second_red_team(open_data(data), share, seed, kind=kind, **wishes)
