"""What happens once `ustad score` has written its tables, whatever executor wrote them.

In: a directory of scores, whole or in parts, on this machine. Out: the same directory with predictions withheld, alerts
chosen by learnt weights, days named and grouped, alerts hidden by rules, and tables of company and groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ustad.cli.alert_files import add_to_run, rewrite_alerts

if TYPE_CHECKING:
    from ustad.cli.withhold import Rejection


@dataclass(frozen=True)
class DaysWish:
    """What is asked for about whole days."""

    country: str | None
    calendar: Path | None
    group: bool

    def note(self, run: dict[str, Any], out_: Path, schema: Any, across: Any) -> dict[str, Any]:
        """What the run says once its days have names and unusual ones are grouped."""
        from ustad.cli.group_days import note_days

        if not (self.country or self.calendar or self.group):
            return run
        groups = across.days if across is not None else None
        return note_days(out_, schema, country=self.country, calendar=self.calendar, group=self.group, groups=groups)


@dataclass(frozen=True)
class AfterScores:
    """What was asked for."""

    weights: dict[str, float]
    days: DaysWish
    rules: list[Any]
    rejection: Rejection | None = None

    @classmethod
    def of(cls, weights: Path | None, days: DaysWish, rules: Path | None) -> AfterScores:
        from ustad.triage.hiding import read_rules
        from ustad.triage.verdict_weights import read_weights

        return cls(
            read_weights(weights) if weights is not None else {}, days, read_rules(rules) if rules is not None else []
        )

    def gather(self, data: Any, model: Path) -> Any:
        """What sees the parts while they are scored; None where alerts change afterwards or days are not grouped."""
        from ustad.cli.across_agents import AcrossAgents

        return AcrossAgents(data, model) if self.days.group and not self.weights else None

    def apply(
        self, run: dict[str, Any], place: Path, schema: Any, days: bool = True, *, model: Path, across: Any = None,
        data: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """What the run says from then on; `data` has the events of all days."""
        from ustad.cli.group_people import delete_earlier, note_company, note_groups
        from ustad.cli.reweigh import reweigh_alerts
        from ustad.cli.withhold import reject_unsure

        delete_earlier(place)
        run = reject_unsure(place, self.rejection, schema, run) if self.rejection is not None else run
        run = reweigh_alerts(place, self.weights, schema) if self.weights else run
        run = self.days.note(run, place, schema, across) if days else run
        run = hide_explained(place, self.rules, schema) if self.rules else run
        if not days or not self.days.group:
            return run
        groups, company = across.people() if across is not None else (None, None)
        counts = note_company(place, data, company) if data is not None else {}
        return {**run, **note_groups(place, schema, model, groups), **counts}


def hide_explained(place: Path, rules: list[Any], schema: Any) -> dict[str, Any]:
    """Take alerts that rules explain off the list, part by part; returns what `run.json` says from now on. Scores,
    p-values and reasons stay; a column of the score table names the rule."""
    from ustad.triage.hiding import COLUMN, hide_alerts

    names: list[str] = []

    def hide(_: int, table: Any) -> Any:
        table = hide_alerts(table, rules, schema)
        names.extend(table[COLUMN].drop_null().to_pylist())
        return table

    alerts = rewrite_alerts(place, schema, hide)
    warnings = []
    if names:
        one = f"{len(names):,} alert{'s are' if len(names) > 1 else ' is'} hidden by rules"
        warnings = [f"{one}; the column {COLUMN} of the score table names them"]
    hidden = {rule.name: names.count(rule.name) for rule in rules}
    return add_to_run(place, warnings, alerts, hidden=hidden)
