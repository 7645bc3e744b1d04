"""The model behind the service: scores events as they come, each by what its agent did before and nothing later.

In: finished events. Out: their rows of the score table, the same as batch scoring gives with the window `past`. The
live scorer holds the recent events of agents. It reads them from the store when an agent comes that it does not hold,
and drops those of the agents that were quiet longest. Scores come from habits (preset `quick`), from
habits and a network (`best`) or from the paper's network (`paper`); always by the same few calls.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad import progress
from ustad.clock import MICROSECONDS_PER_DAY, check_zone
from ustad.config import ExtractionConfig
from ustad.detector import Detector
from ustad.mobility.reading import Reading
from ustad.mobility.timezones import with_timezone, zones_of
from ustad.page.store import Row
from ustad.page.translate import Layout, event_rows, event_table, has_event_ids, keys_for
from ustad.schema import EventSchema
from ustad.scoring.alerts import DEFAULT_P_VALUE, LeastRate
from ustad.scoring.incidents import Count, IncidentLog, incident_share, threshold_for
from ustad.service.live_backends import make_backend
from ustad.service.live_incidents import join_incident, pack_state, unpack_state
from ustad.service.live_weights import LiveWeights
from ustad.service.pipeline import ScoreBatch
from ustad.service.place_names import PlaceNames
from ustad.service.settings import Settings
from ustad.tables import DataError

#: The smallest and the largest p-value that alerts may begin at.
RAREST, MOST_OFTEN = 1e-9, 0.5
#: Made-up events of one agent, one a day, that the scorer is warmed up with: more events than are judged one by one,
#: and more days than a history waits before it moves on.
WARMING_DAYS = 40


class ModelScorer:
    """A loaded detector with the recent events of the agents it has met."""

    def __init__(self, detector: Detector, settings: Settings) -> None:
        self.schema: EventSchema = detector.schema
        mobile = self.schema.name == "mobility"
        self.extraction: ExtractionConfig | None = detector.config.extraction if mobile else None
        self._detector, self._settings = detector, settings
        counts = detector.judge.counts if detector.judge is not None else ()
        self.p_value = alert_share(detector.facts, settings.alerts_per_day, counts)
        self.notes = rate_words(detector, settings.alerts_per_day, counts)
        self.least_rate = least_rate(detector)
        self._backend = make_backend(
            detector, self.p_value, settings.max_live_agents, model=settings.model, workers=settings.workers
        )
        self.together = getattr(detector.judge, "together", None)  # how rare pairs of people are
        self.weights = LiveWeights.read(settings.weights, self.p_value)
        self.context = self._backend.context
        self.fingerprint = model_fingerprint(settings.model)
        self._zone = check_zone(settings.timezone) if settings.timezone else only_zone(detector.facts)
        self._places = PlaceNames(settings.pois, detector.judge)
        self._layout = Layout.of(self.schema)
        self._held: OrderedDict[str, None] = OrderedDict()  # agents, the one seen last at the end
        self._incidents: dict[str, IncidentLog] = {}

    @classmethod
    def load(cls, settings: Settings) -> ModelScorer:
        if settings.model is None:
            raise DataError("a model directory is needed to score")
        scorer = cls(Detector.load(settings.model, device=settings.device), settings)
        for note in scorer.notes:
            progress.warn(note)
        scorer.warm_up()
        return scorer

    def warm_up(self) -> None:
        """Score made-up events once, both ways and in every process, so that the first real one does not wait for what
        loads late. They come after all days that were learnt from, so that a change of day and a history that moves on
        are loaded too. One process goes first: what is compiled on first use is compiled once, not by all of them side
        by side."""
        nobody = self._backend.strangers
        begin = round((self._end_of("learned_until") or 0.0) * 1e6) + MICROSECONDS_PER_DAY
        for names in (nobody[:1], nobody[1:]) if len(nobody) > 1 else (nobody,):
            for n in (1, WARMING_DAYS):
                times = [begin + i * MICROSECONDS_PER_DAY for i in range(n)]
                rows = [
                    {
                        "agent": name,
                        "started_at": time,
                        "finished_at": time + 1,
                        "timezone": "UTC",
                        "lat": 0.0,
                        "lon": 0.0,
                    }
                    for name in names
                    for time in times
                ]
                self.remember(names, event_table([], self._layout), {}, {})
                self.score(rows)
                self.forget(names)

    def close(self) -> None:
        """End the processes that score, where there are any."""
        self._backend.close()

    def trained_until(self) -> float | None:
        """The end of the last day of training, in seconds since 1970; none where the model does not say."""
        return self._end_of("last_day")

    def _end_of(self, fact: str) -> float | None:
        """The end of a day that the model names, in seconds since 1970."""
        day = self._detector.facts.get(fact)
        return datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() + 86_400 if day else None

    @property
    def agents_held(self) -> int:
        return len(self._held)

    # ------------------------------------------------------------------------------------------ memory
    def missing(self, agents: Sequence[str]) -> list[str]:
        return [agent for agent in agents if agent not in self._held or self._backend.missing(agent)]

    def remember(
        self,
        agents: Sequence[str],
        context: pa.Table,
        states: Mapping[str, bytes],
        incidents: Mapping[str, IncidentLog],
    ) -> None:
        """Take over the recent events, the states and the incidents of these agents, read from the store."""
        names = context[self.schema.entity]
        for agent in agents:
            log, state = unpack_state(states.get(agent))
            self._incidents[agent] = log or incidents.get(agent) or IncidentLog()
            self._backend.remember(agent, context.filter(pc.equal(names, agent)), state)
            self._held[agent] = None

    def forget(self, agents: Sequence[str]) -> None:
        for agent in agents:
            self._held.pop(agent, None)
            self._incidents.pop(agent, None)
            self._backend.let_go(agent)

    def erase(self, agents: Sequence[str]) -> None:
        self.forget(agents)
        for agent in agents:
            self._backend.erase(agent)

    def _hold(self, agents: Sequence[str]) -> None:
        """These agents were seen last; let go of those that were quiet longest."""
        for agent in agents:
            self._held[agent] = None
            self._held.move_to_end(agent)
        while len(self._held) > self._settings.max_live_agents:
            quiet = self._held.popitem(last=False)[0]
            self._incidents.pop(quiet, None)
            self._backend.let_go(quiet)

    # ----------------------------------------------------------------------------------------- scoring
    def score(self, events: Sequence[Row]) -> ScoreBatch:
        """Scores of rows of events in order of agent and time, each after everything it knows of the agent."""
        zones = event_zones(events, self._layout, self._zone)
        rows = event_rows([{**row, "timezone": z} for row, z in zip(events, zones, strict=True)], self._layout)
        scores = self._backend.score(rows)
        if self.weights is not None:
            self.weights.choose(scores.rows)
        echoes = self._join_incidents(events, scores.rows)
        starts = {str(event["agent"]): event["started_at"] for event in events}  # the latest of each
        states = {
            agent: pack_state(self._incidents[agent], starts[agent], state) for agent, state in scores.states.items()
        }
        self._hold([str(row[self.schema.entity]) for row in rows])
        return replace(scores, zones=zones, finals=echoes, states=states)

    def _join_incidents(self, events: Sequence[Row], scores: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Which incident each event belongs to, written into its score; returns the earlier events that led one until
        now, by key."""
        keys = keys_for(events, has_event_ids(self.schema))
        echoes: dict[int, dict[str, Any]] = {}
        for event, key, score in zip(events, keys, scores, strict=True):
            log = self._incidents.setdefault(event["agent"], IncidentLog())
            name = event.get("event_id")
            incident = join_incident(log, event, key, str(key) if name is None else str(name), score=score)
            if incident is not None and incident.led_before is not None:
                echoes[incident.led_before] = {"echo": True}
        return echoes

    # -------------------------------------------------------------------------------------- extraction
    def locate(self, stays: pa.Table, trips: pa.Table) -> pa.Table:
        """Extracted stays as the model reads them: with zone, category and the vectors of the trip there."""
        if not stays.num_rows:
            return stays
        stays = with_timezone(stays, None, Reading(self._zone))
        stays = self._places.name(stays, self._detector.config.extraction.poi_radius_m)
        stays = self._detector.trips.attach(stays, trips)
        return self._with_columns(stays)

    def _with_columns(self, stays: pa.Table) -> pa.Table:
        """The columns that events sent by hand have too, in one order and of one type."""
        layout = event_table([], self._layout).schema
        arrays = []
        for field in layout:
            is_there = field.name in stays.column_names
            arrays.append(stays[field.name].cast(field.type) if is_there else pa.nulls(stays.num_rows, field.type))
        return pa.table(arrays, schema=layout)


def model_fingerprint(path: Path | None) -> str:
    """What tells one model directory from another: a hash of its manifest, which has checksums of all its files."""
    manifest = path / "manifest.json" if path is not None else None
    has_manifest = manifest is not None and manifest.is_file()
    return hashlib.sha256(manifest.read_bytes()).hexdigest()[:32] if manifest is not None and has_manifest else ""


def alert_share(facts: dict[str, Any], alerts_per_day: float, counts: Sequence[Count] = ()) -> float:
    """The p-value that gives about so many alerts a day, if as many events come a day as in training."""
    events = events_per_day(facts)
    if not alerts_per_day or not events:
        return DEFAULT_P_VALUE
    return min(max(threshold_for(alerts_per_day / events, counts), RAREST), MOST_OFTEN)


def events_per_day(facts: dict[str, Any]) -> float:
    """How many events came a day in training; 0 where the model does not say."""
    try:
        days = (date.fromisoformat(facts["last_day"]) - date.fromisoformat(facts["first_day"])).days + 1
        return float(facts["events"]) / days
    except (KeyError, ValueError, ZeroDivisionError):
        return 0.0


def least_rate(detector: Detector) -> LeastRate | None:
    """The fewest alerts a day that the model's reference can tell apart; None where that is not known."""
    events, judge = events_per_day(detector.facts), detector.judge
    return LeastRate.of(judge.reference, events, judge.counts) if events and judge and judge.reference else None


def rate_words(detector: Detector, alerts_per_day: float, counts: Sequence[Count]) -> list[str]:
    """What to say where so many alerts a day cannot be had, or rest on nothing that was counted; and what can be."""
    events, least = events_per_day(detector.facts), least_rate(detector)
    if not alerts_per_day:
        return []
    if not events:
        return ["the model does not say how many events come a day: alerts are one usual event in a thousand"]
    most = incident_share(MOST_OFTEN, counts) * events
    if alerts_per_day > most:
        return [f"{alerts_per_day:g} alerts a day were asked for; at most about {most:.2g} a day can be had"]
    if least is not None and not least.allows(alerts_per_day):
        return [f"{alerts_per_day:g} alerts a day were asked for; {least.words()}"]
    return []


def event_zones(events: Sequence[Row], layout: Layout, zone: str | None) -> list[str]:
    """The zone of each event, from the first that has one: the schema (one zone for all), the event, its place, the
    service's setting, UTC. A place at sea has no zone, nor has any place without the library of zones."""
    if layout.zone_column is None:
        return [layout.schema.timezone] * len(events)
    zones = [row["timezone"] for row in events]
    rows = [i for i, row in enumerate(events) if not zones[i] and None not in (row.get("lat"), row.get("lon"))]
    if rows:
        lat, lon = (np.array([events[i][name] for i in rows], np.float64) for name in ("lat", "lon"))
        for i, zone_name in zip(rows, zones_of(lat, lon, Reading(zone)).to_pylist(), strict=True):
            zones[i] = zone_name
    return [own or zone or "UTC" for own in zones]


def only_zone(facts: dict[str, Any]) -> str | None:
    """The zone of the training data, where it had one only."""
    zones = facts.get("timezones") or []
    return zones[0] if len(zones) == 1 else None
