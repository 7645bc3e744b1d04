"""Days of a whole service from one seed: phones, network, clock, disk and kills, against a plain list.

In: a detector, a seed and a number of days. Out: a digest of everything that happened, in order. A broken promise
raises `ViolatedError`.
"""

from __future__ import annotations

import hashlib
import heapq
import random
import sqlite3
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plain_list import MICRO_BATCH, PlainList, ViolatedError, demand
from simulated_life import Exchange, Life
from simulated_machine import Clock, Disk, KilledError, state_of
from simulated_phones import DAY, FIRST, HOUR, MINUTE, Network, Phone

from ustad.detector import Detector
from ustad.service.live import ModelScorer
from ustad.service.settings import Settings

KNOWN_DAYS = 24  # the model's
#: How often a day something goes wrong, or is done, on average.
RATES = {
    "kill": 0.8, "kill in a statement": 0.6, "torn": 0.3, "io": 0.6, "locked": 0.2, "refused": 0.3, "answer lost": 0.3,
    "failing": 0.3, "clock": 0.3, "forget": 0.15, "retain": 3.0, "verdict": 0.5,
}  # fmt: skip


@dataclass
class Result:
    digest: str
    figures: Counter[str] = field(default_factory=Counter)


class Simulation:
    def __init__(self, detector: Detector, seed: int, folder: Path) -> None:
        self.chance = random.Random(f"simulation {seed}")
        self.detector, self.digest, self.figures = detector, hashlib.sha256(), Counter[str]()
        self.clock = Clock(FIRST + KNOWN_DAYS * DAY + 7 * HOUR)
        self.disk = Disk(folder, self._branch())
        self.network = Network(self._branch())
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.count, self.cursor, self.is_ending, self.is_stepping = 0, 0, False, False
        self.lines: deque[str] = deque(maxlen=60)
        self.life: Life | None = None
        self.unanswered: list[Exchange] = []  # requests that a kill left open
        self.forgetting: list[str] = []
        self.expiring: int | None = None  # a moment of retention that a kill may have cut short
        self.settings = Settings(
            store="", keep_days=self.chance.choice((0.0, 9.0, 9.0)), lateness_s=self.chance.choice((0.0, 0.0, 900.0)),
            alerts_per_day=3.0, max_live_agents=self.chance.choice((1, 2, 1000)), micro_batch=MICRO_BATCH,
        )  # fmt: skip
        self.model = PlainList(detector, self.settings)
        people = [
            Phone(name, number, sends, self._branch(), KNOWN_DAYS)
            for name, number, sends in (
                ("agent 0", 0, "events"), ("stranger-1", 1, "events"), ("stranger-2", 2, "fixes"),
                ("agent 3", 3, "events"),
            )
        ]  # fmt: skip
        self.phones = self.chance.sample(people, self.chance.choice((1, 1, 1, 2, 2, 4)))

    def _branch(self) -> random.Random:
        return random.Random(self.chance.getrandbits(64))

    # ------------------------------------------------------------------------------------------------ time
    def after(self, delay: int, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.agenda, (self.clock.true + max(delay, 1), self.count, act))

    def note(self, what: str, detail: object = "") -> None:
        line = f"{(self.clock.true - FIRST) / DAY:.5f} {what} {detail}"
        self.lines.append(line[:300])
        self.digest.update(line.encode())
        self.figures[what] += 1

    def run(self, days: int) -> Result:
        end = self.clock.true + days * DAY
        self._start()
        for phone in self.phones:
            self.after(self.chance.randrange(HOUR), lambda phone=phone: self._tick(phone))
        for what in RATES:
            self._plan(what)
        self.after(HOUR, self._poll)
        self.after(12 * HOUR, self._check)
        self._go(lambda: bool(self.agenda) and self.agenda[0][0] <= end)
        self._end()
        self.figures["days"] = days
        return Result(self.digest.hexdigest(), self.figures)

    def _go(self, going: Callable[[], bool]) -> None:
        while going():
            self.clock.true, _, act = heapq.heappop(self.agenda)
            act()

    def _end(self) -> None:
        """Nothing goes wrong any more: everything that the phones hold arrives, and all is compared."""
        self.is_ending, self.network.is_reliable, self.clock.wrong_by = True, True, 0
        self.disk.calm()
        for phone in self.phones:
            phone.offline_until, phone.coming = 0, []
        deadline = self.clock.true + 20 * DAY
        busy = lambda: bool(self.forgetting) or any(p.outbox or p.trying for p in self.phones)  # noqa: E731  # asked twice
        self._go(lambda: bool(self.agenda) and self.agenda[0][0] <= deadline and busy())
        demand(not busy(), "phones cannot deliver although nothing is wrong")
        later = self.clock.true + 40 * HOUR  # copies that are still on their way
        self._go(lambda: bool(self.agenda) and self.agenda[0][0] <= later)
        if self.life is None:
            self._start()
        self._poll()
        self._check()
        if self.life is None:
            raise ViolatedError("the service does not start although nothing is wrong")
        self.figures["scores compared"] = self.model.compare_scores(self.life.service.store)
        self.note("end", state_of(self.disk.path))
        self.life.end()

    # ------------------------------------------------------------------------------------------ the service
    def _start(self) -> None:
        if self.life is not None:
            return
        if self.disk.is_dead:
            self.disk.revive()
        settings = Settings(**{**vars(self.settings), "store": f"sqlite:///{self.disk.path}"})
        try:
            self.life = Life(self.disk, settings, ModelScorer(self.detector, settings))
        except KilledError:
            self.note("killed while starting")
            self.after(5 * MINUTE, self._start)
            return
        except Exception as error:  # a disk that fails: whoever started it tries again
            demand(self.disk.failing or not self.is_ending, f"does not start: {type(error).__name__}")
            self.note("start failed", type(error).__name__)
            self.after(5 * MINUTE, self._start)
            return
        self.note("started")
        if self.disk.torn is not None:
            demand(state_of(self.disk.path) in self.disk.torn, "a torn transaction is half there")
            self.disk.torn = None
        self._resolve(self.unanswered)
        self.unanswered = []
        self._resolve_retention()

    def _kill(self) -> None:
        if self.life is not None and not self.disk.is_dead:
            self.disk.kill()
        self._bury()

    def _bury(self) -> None:
        """After a kill: what was under way is looked up when the store is open again."""
        if self.life is None or not self.disk.is_dead:
            return
        self.unanswered += self.life.end()
        self.life, self.is_stepping = None, False
        self.note("killed", len(self.unanswered))
        self.after(self.chance.choice((1, 60, 2400)) * MINUTE // 20, self._start)

    def _deliver(self, exchange: Exchange) -> None:
        """A message arrives at the service, or at nobody."""
        if self.life is None:
            return
        self.note("request", (exchange.method, exchange.path, len((exchange.body or {}).get("events", ()))))
        self._handle(self.life.send(exchange))
        if self.life is not None and not self.is_stepping:
            self.is_stepping = True
            self.after(self._work_time(), self._step)

    def _work_time(self) -> int:
        return self.chance.choice((5_000, 50_000, 3_000_000, 40_000_000))

    def _step(self) -> None:
        self.is_stepping = False
        if self.life is None:
            return
        stored_anyway = self.disk.ambiguous
        answered = self.life.step()
        self._handle(answered, self.disk.ambiguous > stored_anyway)
        if self.life is not None and not self.life.is_idle:
            self.is_stepping = True
            self.after(self._work_time(), self._step)

    def _handle(self, answered: list[Exchange], is_ambiguous: bool = False) -> None:
        if self.disk.is_dead:
            self._bury()
            return
        for exchange in answered:
            self.note("answer", (exchange.status, exchange.content))
            self.figures[f"answer {exchange.status}"] += 1
            exchange.about(exchange, is_ambiguous)

    # -------------------------------------------------------------------------------------------- phones
    def _tick(self, phone: Phone) -> None:
        chance = phone.chance
        self.after(chance.randrange(30, 240) * MINUTE, lambda: self._tick(phone))
        if not self.is_ending:
            phone.live_until(self.clock.true)
            if chance.random() < 0.02:
                phone.offline_until = self.clock.true + chance.choice((2, 9, 50)) * HOUR
        if phone.outbox and phone.trying is None and not phone.is_paused and self.clock.true >= phone.offline_until:
            self._send(phone)

    def _send(self, phone: Phone) -> None:
        items = phone.take()
        number = phone.try_number = phone.try_number + 1
        body = {phone.sends: [item["body"] for item in items]}
        for delay in self.network.copies():
            exchange = Exchange("POST", f"/v1/{phone.sends}", body)
            exchange.about = lambda one, ambiguous, p=phone, i=items, n=number: self._taken(p, i, n, one, ambiguous)
            exchange.parts = (phone, items)
            self.after(delay, lambda e=exchange, p=phone: None if p.is_paused else self._deliver(e))
        self.after(10 * MINUTE, lambda: self._give_up(phone, number))

    def _give_up(self, phone: Phone, number: int) -> None:
        """No answer in time: it is sent again at the next occasion."""
        if phone.trying is not None and phone.try_number == number:
            phone.trying = None

    def _taken(self, phone: Phone, items: list[Any], number: int, one: Exchange, ambiguous: bool) -> None:
        """The service has answered a phone: the list follows, and the answer goes its way."""
        if phone.sends == "events":
            self._events_answered(phone, items, one, ambiguous)
        else:
            self._fixes_answered(phone, items, one, ambiguous)
        if not self.network.copies():
            return  # the answer is lost
        if one.status == 200 and phone.outbox[: len(items)] == items:  # of this try, or of an earlier one
            del phone.outbox[: len(items)]
        demand(one.status != 409 or phone.outbox[:1] != items[:1] or phone.trying is None, "a phone cannot go on")
        phone.trying = None

    def _events_answered(self, phone: Phone, items: list[Any], one: Exchange, ambiguous: bool) -> None:
        rows = [item["row"] for item in items]
        in_order, fresh = self.model.expect(phone.agent, rows)
        if one.status == 200:
            demand(in_order, "events out of order were accepted")
            counts = (one.answer["accepted"], one.answer["duplicates"])
            expected = (len(fresh), len(rows) - len(fresh))  # what is stored although its commit failed counts as known
            demand(ambiguous or counts == expected, f"{counts} accepted and again, not {expected}")
            self.model.add(phone.agent, fresh)
        elif one.status == 409:
            demand(not in_order, "events in order were refused")
        else:
            demand(one.status in (422, 503), f"answered {one.status}: {one.content!r}")
            demand(one.status == 503 or self.clock.wrong_by < 0, "refused although the clock is not behind")
            self._look_up(one, may_be_there=ambiguous or b"this is stored" in one.content)

    def _fixes_answered(self, phone: Phone, items: list[Any], one: Exchange, ambiguous: bool) -> None:
        if one.status == 200:
            was_unsure = self.model.agents[phone.agent].is_unsure if phone.agent in self.model.agents else False
            new = self.model.add_fixes(phone.agent, items)
            self.model.agents[phone.agent].is_unsure |= ambiguous  # they may have come twice, which is found later
            if not was_unsure and not ambiguous:
                demand(one.answer["accepted"] == new, f"{one.answer['accepted']} fixes accepted, not {new}")
        else:
            demand(one.status in (422, 503), f"answered {one.status}: {one.content!r}")
            self._look_up(one, may_be_there=ambiguous, is_stored=ambiguous and one.status == 503)

    # --------------------------------------------------------------------------- what an answer did not say
    def _resolve(self, exchanges: list[Exchange]) -> None:
        for exchange in exchanges:
            if exchange.parts is not None:
                self._look_up(exchange, may_be_there=True)

    def _look_up(self, exchange: Exchange, may_be_there: bool, is_stored: bool = False) -> None:
        """What the store has of a request that was not acknowledged; `is_stored`: a commit that failed stored it."""
        phone, items = exchange.parts
        if phone.agent in self.forgetting:
            return
        share = max(1, MICRO_BATCH // exchange.most_waiting)  # each that waits has an equal one
        keys = self._stored_keys()
        if phone.sends == "events":
            is_cut = len(items) > share
            self.model.look_up(phone.agent, items, keys, may_be_there=may_be_there, is_cut=is_cut)
        elif is_stored and len(items) <= 10 * share:
            self.model.add_fixes(phone.agent, items)
            self.model.agents[phone.agent].is_unsure = True
        else:
            self.model.look_up_fixes(phone.agent, items, keys)

    def _stored_keys(self) -> set[int]:
        with closing(sqlite3.connect(self.disk.path)) as connection:
            return {key for (key,) in connection.execute("SELECT key FROM events")}

    # -------------------------------------------------------------------------------------- what people do
    def _poll(self) -> None:
        """The analyst asks for new alerts."""
        if not self.is_ending:
            self.after(self.chance.randrange(2, 10) * HOUR, self._poll)
        exchange = Exchange("GET", f"/v1/alerts?since={self.cursor}&limit=1000&order=time")
        exchange.about = self._polled
        self._deliver(exchange)

    def _polled(self, one: Exchange, ambiguous: bool) -> None:
        demand(one.status in (200, 503), f"alerts were answered {one.status}")
        if one.status == 200 and self.network.copies():
            self.cursor = one.answer["next_since"]
            self.model.hear([int(alert["id"]) for alert in one.answer["alerts"]])

    def _judge(self) -> None:
        if self.model.told:
            key = self.chance.choice(sorted(self.model.told))
            body = {"verdict": self.chance.choice(("confirmed", "expected")), "reason": "known"}
            exchange = Exchange("PUT", f"/v1/alerts/{key}/verdict", body)
            exchange.about = lambda one, ambiguous: demand(one.status in (200, 404, 503), f"verdict: {one.status}")
            self._deliver(exchange)

    def _forget(self) -> None:
        phone = self.chance.choice(self.phones)
        if phone.agent.startswith("stranger") and phone.agent not in self.forgetting:
            phone.live_until(self.clock.true)
            phone.outbox, phone.trying, phone.is_paused = [], None, True
            self.forgetting.append(phone.agent)
            self.after(MINUTE, lambda: self._ask_to_forget(phone))

    def _ask_to_forget(self, phone: Phone) -> None:
        """Until it is done."""
        if phone.agent in self.forgetting:
            exchange = Exchange("DELETE", f"/v1/agents/{phone.agent}")
            exchange.about = lambda one, ambiguous: self._forgotten(phone, one)
            self.after(20 * MINUTE, lambda: self._ask_to_forget(phone))
            self._deliver(exchange)

    def _forgotten(self, phone: Phone, one: Exchange) -> None:
        if one.status == 200 and phone.agent in self.forgetting:
            self.model.forget(phone.agent)
            demand(phone.agent.encode() not in self.disk.content(), "bytes of a forgotten agent are in the store")
            self.forgetting.remove(phone.agent)
            phone.is_paused = False

    def _retain(self) -> None:
        if self.life is None or not self.settings.keep_days:
            return
        self.expiring = self.clock.shown - round(self.settings.keep_days * DAY)
        self.note("retain", self.expiring)
        self.life.expire()
        if not self.disk.is_dead:
            self._resolve_retention()
        self._bury()
        if self.life is not None and not self.is_stepping:
            self.is_stepping = True
            self.after(self._work_time(), self._step)

    def _resolve_retention(self) -> None:
        if self.expiring is not None:
            self.model.retain(self.expiring, self._stored_keys())
            self.expiring = None

    # ------------------------------------------------------------------------------------------- accidents
    def _plan(self, what: str) -> None:
        self.after(round(self.chance.expovariate(RATES[what]) * DAY), lambda: self._happen(what))

    def _happen(self, what: str) -> None:
        if self.is_ending:
            return
        self._plan(what)
        self.note("now", what)
        if what == "kill":
            self._kill()
        elif what == "failing":
            self.disk.failing = self.chance.choice(("full", "readonly", "io"))
            self.after(self.chance.choice((10, 60, 180)) * MINUTE, self._mend)
        elif what == "clock":
            self.clock.wrong_by = self.chance.choice((-70, -5, -1, 1, 5, 70, 900)) * HOUR // 2
            self.after(self.chance.choice((1, 5, 20)) * HOUR, self._set_clock)
        elif what in ("forget", "retain", "verdict"):
            {"forget": self._forget, "retain": self._retain, "verdict": self._judge}[what]()
        else:
            names = {"kill in a statement": "kill"}
            self.disk.arm(names.get(what, what), self.chance.randrange(4 if what in ("torn", "refused") else 30))

    def _mend(self) -> None:
        self.disk.failing = None

    def _set_clock(self) -> None:
        self.clock.wrong_by = 0

    def _check(self) -> None:
        """The store and the list, as they are between two steps; nothing goes wrong meanwhile."""
        if not self.is_ending:
            self.after(12 * HOUR, self._check)
        if self.life is None:
            return
        armed, failing = self.disk.armed, self.disk.failing
        self.disk.calm()
        self.model.compare(self.life.service.store, {*self.forgetting, *self._under_way()})
        self.disk.armed, self.disk.failing = armed, failing
        self.note("compared")

    def _under_way(self) -> list[str]:
        """Agents of whom some slices may be stored and others not."""
        waiting = self.life.pending if self.life is not None else []
        return [one.parts[0].agent for one in waiting if one.parts is not None]
