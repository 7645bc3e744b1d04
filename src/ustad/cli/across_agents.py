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
        """The scores of a part without alerts of unusual days; incidents and agents follow, as in `rewrite_alerts`."""
        import pyarrow.compute as pc

        from ustad.agent_order import add_alerts
        from ustad.files import set_columns

        events = self.days.take_off(number, part.events)
        if events is part.events or part.incidents is None:
            return replace(part, events=events)
        alerts, entity = events.filter(events["alert"]), self.days.schema.entity
        flags = pc.is_in(part.incidents["incident_id"], alerts["incident_id"].combine_chunks())
        agents = part.agents if part.agents is None else add_alerts(part.agents, alerts[entity], entity)
        return replace(part, events=events, agents=agents, incidents=set_columns(part.incidents, alert=flags))
