"""`ustad score`: what is found across all agents (unusual days, groups), gathered while their parts are scored.

Each part is read as soon as its scores are known, while the next part is measured. So little is left to do after the
last part, and no file is read twice.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ustad.cli.group_days import DayGroups


class AcrossAgents:
    """Unusual days and groups of all parts."""

    def __init__(self, schema: Any, model: Path) -> None:
        from ustad.cli.group_people import read_together
        from ustad.triage.groups import GroupFinder

        self.days, together = DayGroups(schema), read_together(model)
        self.groups = GroupFinder(schema, together) if together is not None else None

    def look(self, events: Any) -> None:
        """The event scores of a part, before alerts are chosen."""
        self.days.look(events)
        if self.groups is not None:
            self.groups.look(events)

    def take_off(self, number: int, part: Any) -> Any:
        """The scores of a part without alerts of unusual days; its incidents follow, as in `rewrite_alerts`."""
        import pyarrow.compute as pc

        from ustad.mobility.places import set_columns

        events = self.days.take_off(number, part.events)
        if events is part.events or part.incidents is None:
            return replace(part, events=events)
        alerts = events["incident_id"].filter(events["alert"]).combine_chunks()
        flags = pc.is_in(part.incidents["incident_id"], alerts)
        return replace(part, events=events, incidents=set_columns(part.incidents, alert=flags))
