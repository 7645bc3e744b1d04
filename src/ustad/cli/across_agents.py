"""`ustad score`: what is found across all agents (unusual days, groups, company), gathered while parts are scored.

Each part is read as soon as its scores are known, while the next part is measured. Groups and company are looked for
beside the writing of the parts. So little is left to do after the last part, and no file is read twice.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ustad.cli.group_days import DayGroups
from ustad.cli.group_people import choose_incidents, first_start, read_together


class AcrossAgents:
    """Unusual days, groups and company of all parts."""

    def __init__(self, data: Any, model: Path) -> None:
        from ustad.triage.groups import GroupFinder

        self._data, self._pool = data, ThreadPoolExecutor(1)
        self.days, together = DayGroups(data.schema), read_together(model)
        self._finder = GroupFinder(data.schema, together) if together is not None else None
        self._incidents: list[Any] = []
        self._company_finder: Future[Any] | None = None
        self._people: Future[tuple[Any, Any]] | None = None

    def prepare(self, events: Any) -> None:
        """Who was with whom needs no scores: that is looked for while they are made."""
        from ustad.triage.companions import CompanyFinder

        schema, since = self._data.schema, first_start(events, self._data.schema) or 0
        self._company_finder = self._pool.submit(CompanyFinder, self._data.events, since, schema)

    def look(self, events: Any) -> None:
        """The event scores of a part, before alerts are chosen."""
        self.days.look(events)
        self._incidents.append(choose_incidents(events, self.days.schema))
        if self._finder is not None:
            self._finder.look(events)

    def finish(self) -> None:
        """All parts were looked at: groups and company are looked for beside whatever comes next."""
        self._people = self._pool.submit(self._find_people)

    def people(self) -> tuple[Any, Any]:
        """Tables of groups (None where the model knows nothing of pairs) and of company."""
        assert self._people is not None
        tables = self._people.result()
        self._pool.shutdown()
        return tables

    def _find_people(self) -> tuple[Any, Any]:
        import pyarrow as pa

        assert self._company_finder is not None
        company = self._company_finder.result().find(pa.concat_tables(self._incidents, promote_options="permissive"))
        return self._finder.table() if self._finder is not None else None, company

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
