"""Labelled anomalies to measure with: the paper's six injections, and a second red team that plans and hides.

Both go into any data (`inject`, `second_red_team`); the second red team also into simulated towns (`SecondTeam`).
"""

from ustad.lab.red_team.injections import inject
from ustad.lab.red_team.second_tables import second_red_team
from ustad.lab.red_team.second_team import KINDS, SecondTeam

__all__ = ["KINDS", "SecondTeam", "inject", "second_red_team"]
