"""The drift alarm over the live scores of one model, kept in the store so that a restart changes nothing.

In: rows as they are stored. Out: what the page, the metrics and the notes say of it. Another model begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection

from ustad.page.store import Row, Store
from ustad.scoring.drift_alarm import DriftAlarm, alarm_words, count_p_values

NAME = "drift"  # what the store calls it


class LiveDrift:
    """`record` belongs into the transaction of the events, `accept` comes after it."""

    def __init__(self, store: Store, model: str) -> None:
        self._store, self._model = store, model
        content = store.about(NAME) or {}
        is_ours = content.get("model") == model
        self.alarm = DriftAlarm.from_json(content["alarm"]) if is_ours else DriftAlarm()

    def record(self, connection: Connection, rows: Sequence[Row]) -> DriftAlarm:
        """The alarm with these events, put into the store."""
        days_and_p = [(row["day"], row["p_value"]) for row in rows if row["p_value"] is not None]
        if not days_and_p:
            return self.alarm
        days, p_values = (np.array(values) for values in zip(*days_and_p, strict=True))
        alarm = self.alarm.add(count_p_values(days, p_values))
        self._store.remember(connection, NAME, {"model": self._model, "alarm": alarm.to_json()})
        return alarm

    def accept(self, alarm: DriftAlarm) -> None:
        """What was recorded is stored."""
        self.alarm = alarm

    def describe(self) -> dict[str, Any]:
        return self.alarm.describe()

    def notes(self) -> list[str]:
        """What a reader should know before the numbers."""
        return [text[:1].upper() + text[1:] + "." for text in alarm_words(self.describe()["raised_on"])]
