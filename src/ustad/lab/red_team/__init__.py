"""A second red team that plans and hides: in simulated towns (`SecondTeam`), or in any data (`second_red_team`)."""

from ustad.lab.red_team.second_tables import second_red_team
from ustad.lab.red_team.second_team import KINDS, SecondTeam

__all__ = ["KINDS", "SecondTeam", "second_red_team"]
