"""People with phones, and the network between them and the service.

A phone keeps what it has recorded until the service has acknowledged it, and sends again what was not. The network
delays, loses and repeats messages; a copy may come hours after its answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
FIRST = 1_709_244_000_000_000  # midnight of 1 March 2024 in Helsinki, the first day of `tiny_stays`
ZONE = "Europe/Helsinki"
#: A day as in `tiny_stays`: minutes after midnight, and where.
STAYS = ((0, 480, "home"), (510, 1000, "work"), (1030, 1120, "shop"), (1150, 1435, "home"))
WHERE = {"home": (0.0, 0.0, 0), "work": (0.004, 0.006, 1), "shop": (0.008, 0.012, 2), "bar": (0.05, 0.04, 9)}
FIX_EVERY = 12 * MINUTE


def iso(moment: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).isoformat()


@dataclass
class Phone:
    """One agent. `sends` is events (finished stays) or fixes."""

    agent: str
    number: int
    sends: str
    chance: random.Random
    day: int  # the next one to be lived, counted from FIRST
    coming: list[dict[str, Any]] = field(default_factory=list)  # recorded later than now
    outbox: list[dict[str, Any]] = field(default_factory=list)
    trying: int | None = None  # how many of the outbox are in the request that is under way
    try_number: int = 0
    offline_until: int = 0
    odd_place: int = 0
    is_paused: bool = False  # the agent is being forgotten

    def live_until(self, now: int) -> None:
        """Record what has happened by now."""
        while FIRST + self.day * DAY <= now:
            self.coming += self._events() if self.sends == "events" else self._fixes()
            self.day += 1
        while self.coming and self.coming[0]["at"] <= now:
            self.outbox.append(self.coming.pop(0))

    def _stays(self) -> list[tuple[int, int, str]]:
        """A usual day, or one with something odd in it; what was odd once is so again some days later."""
        start, chance = FIRST + self.day * DAY, self.chance
        stays = []
        for first, last, where in STAYS:
            late = chance.randrange(15) if first else 0
            stays.append([start + (first + late) * MINUTE, start + (last + chance.randrange(5)) * MINUTE, where])
        if chance.random() < 0.3:
            stays[2][2] = "bar"
            self.odd_place = chance.choice((self.odd_place, chance.randrange(5)))
        if chance.random() < 0.1:
            stays[1][1] = stays[2][0] - 20 * MINUTE - chance.randrange(200) * MINUTE
        return [(a, b, where) for a, b, where in stays if b > a]

    def _position(self, where: str) -> tuple[float, float]:
        north, east, _ = WHERE[where]
        more = 0.03 * self.odd_place if where == "bar" else 0.0
        return 60.17 + 0.01 * self.number + north + more, 24.94 + east

    def _events(self) -> list[dict[str, Any]]:
        made = []
        for start, end, where in self._stays():
            lat, lon = self._position(where)
            place = f"{self.number}/{WHERE[where][2] + (self.odd_place if where == 'bar' else 0)}"
            body = {"agent_id": self.agent, "started_at": iso(start), "finished_at": iso(end), "lat": lat, "lon": lon,
                    "poi_id": place, "poi_category": where, "timezone": ZONE}  # fmt: skip
            row = {"agent": self.agent, "started_at": start, "finished_at": end, "timezone": ZONE, "event_id": None,
                   "lat": lat, "lon": lon, "poi_id": place, "place_name": None, "category": where, "n_fixes": None,
                   "start_gap_s": None, "end_gap_s": None, "observed_s": None}  # fmt: skip
            made.append({"at": end, "body": body, "row": row})
        return made

    def _fixes(self) -> list[dict[str, Any]]:
        made = []
        for start, end, where in self._stays():
            lat, lon = self._position(where)
            moment = start
            while moment <= end:
                jitter = self.chance.uniform(-2e-5, 2e-5)
                body = {"agent_id": self.agent, "time": iso(moment), "lat": lat + jitter, "lon": lon}
                made.append({"at": moment, "body": body, "time": moment, "lat": lat + jitter, "lon": lon})
                moment += FIX_EVERY
        return made

    def take(self) -> list[dict[str, Any]]:
        """What it sends now: usually a little, and much after a long time offline."""
        most = self.chance.choice((1, 2, 5, 20, 60)) * (8 if self.sends == "fixes" else 1)
        self.trying = min(most, len(self.outbox))
        return self.outbox[: self.trying]


@dataclass
class Network:
    """Microseconds until each copy of a message arrives; no copy: it is lost."""

    chance: random.Random
    is_reliable: bool = False

    def copies(self) -> list[int]:
        if self.is_reliable:
            return [MINUTE // 10]
        if self.chance.random() < 0.08:
            return []
        delays = [self._delay()]
        if self.chance.random() < 0.1:
            delays.append(self._delay() + self.chance.choice((0, MINUTE, 3 * HOUR, 30 * HOUR)))
        return delays

    def _delay(self) -> int:
        return round(1e6 * self.chance.lognormvariate(-1.0, 2.0))
