"""What the page is answered: totals, swim lanes, places and movements of an agent, one event in detail.

These describe the answers in the OpenAPI description; the answers are made by `queries` and `event_details`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ustad.service.messages import EventAnswer, GivenVerdict, OtherEvent
from ustad.service.messages_cases import CaseLine
from ustad.service.messages_map import MapFacts


class Health(BaseModel):
    status: Literal["ok"]


class Ready(BaseModel):
    """`scoring` is off where a finished run is shown and nothing new is taken."""

    status: Literal["ready"]
    scoring: Literal["on", "off"]


class RateWords(BaseModel):
    """The fewest alerts a day that can be told apart, and what to say to who asks for fewer."""

    least_per_day: float
    words: str


class About(BaseModel):
    """`run` is the name of the finished run on show. `tiles` is the address of a map server, empty for none. `map` is
    the archive of tiles that the service was given. `notes` say what a reader should know before the numbers.
    `categories` are those with a colour of their own. `days` are holidays and other days with a name, by date.
    `devices` says whether phones can send."""

    version: str
    entity_word: str
    event_word: str
    tiles: str
    map: MapFacts | None
    caller: str
    roles: list[str]
    live: bool
    devices: bool
    run: str | None
    has_place: bool
    alerts_per_day: float | None
    notes: list[str]
    rate: RateWords | None
    chance_share: float | None
    alert_p_value: float | None
    categories: list[str]
    days: dict[str, str]


class Drift(BaseModel):
    """The drift alarm over p-values. Evidence is its log10: at 0 it begins, at `log_limit` the alarm is raised, and
    `raised_on` is that day. `share_05` and `share_01` are shares of p-values up to 0.05 and 0.01."""

    log_evidence: float
    log_peak: float
    log_limit: float
    raised_on: str | None
    days: int
    events: int
    share_05: float
    share_01: float


class PeopleTogether(BaseModel):
    """Several people at one place and time: who, how many pairs of a normal week are as rare, and a sentence. Until
    when, in microseconds of UTC."""

    agent_ids: list[str]
    p_value: float
    reason: str
    finished_at: int


class RunFacts(BaseModel):
    """A finished run as a whole; empty where the service shows none. `scatter` and `calibration` are drawn as they
    are: uncertainty against surprise, and the share of events at or below each p-value. `card` is the model's card in
    blocks of text. `drift` is of live scores where a model scores. `together` has those of the run and, where a model
    scores, those of the latest four weeks."""

    rule: str
    notes: list[str]
    rate: RateWords | None = None  # a store of before has neither
    chance_share: float | None = None
    figures: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    together: list[PeopleTogether] = []
    scatter: dict[str, Any] | None
    calibration: dict[str, Any] | None
    categories: list[str] = []
    days: dict[str, str] = {}
    drift: Drift | None = None
    quality: list[dict[str, str]]
    card: list[dict[str, Any]]
    facts: list[list[str]]


class CurvePoint(BaseModel):
    """The threshold that gives so many alerts a day."""

    per_day: int
    score: float
    p_value: float | None


class OddDay(BaseModel):
    day: str
    events: int


class Summary(BaseModel):
    """Days and curve are of the stretch of time with the most events; `odd_days` lie at least half a year from it, with
    no score between. `hidden` are alerts that rules hide, which `alerts` leaves out. `alert_score` and `alert_p_value`
    are those of the mildest alert that is shown. `unusual` counts the events at least as unusual as that alert. `kinds`
    and `categories` are those of alerts, the most frequent first."""

    events: int
    agents: int
    alerts: int
    hidden: int
    days: int
    first_day: str | None
    last_day: str | None
    alert_score: float | None
    alert_p_value: float | None
    unusual: int
    curve: list[CurvePoint]
    odd_days: list[OddDay]
    kinds: list[str]
    categories: list[str]


class Cell(BaseModel):
    """One agent on one local day; `worst` is the id of its most unusual event, `echo` whether another one leads its
    incident."""

    day: str
    score: float
    events: int
    alerts: int
    worst: str
    reason: str | None
    kind: str | None
    echo: bool


class Lane(BaseModel):
    agent_id: str
    cells: list[Cell]


class Lanes(BaseModel):
    total: int
    offset: int
    first: str | None
    last: str | None
    lanes: list[Lane]


class Place(BaseModel):
    lat: float
    lon: float
    visits: int
    category: str
    name: str | None
    hours: float


class Places(BaseModel):
    places: list[Place]


class Gap(BaseModel):
    started_at: str
    finished_at: str


class Trip(Gap):
    """`path` holds points as [longitude, latitude]."""

    path: list[list[float]]


class Absence(Gap):
    """A nearly certain visit that did not come: from when until when it was expected. `instead` is the event that took
    its place, and `incident_id` the incident of that one."""

    category: str | None
    p_value: float
    reason: str
    instead: str | None
    incident_id: str | None


class Movements(BaseModel):
    trips: list[Trip]
    gaps: list[Gap]
    absences: list[Absence]


# ---------------------------------------------------------------------------------------------- one event
class FeatureAnswer(BaseModel):
    """A feature, expected beside observed. `share` is its part of what makes the event unusual. `au` and `eu` are the
    aleatoric and the epistemic uncertainty. For a place, `expected` and `observed` have `lat` and `lon`, `error` is in
    km, and `spread` has one number for each direction."""

    name: str
    label: str
    display: str
    unit: str
    kind: str
    scored: bool
    pct: float | None
    surprise: float
    period: float | None
    loss: float | None
    au: float | None
    eu: float | None
    expected: Any
    error: Any
    spread: Any
    observed: Any
    share: float


class Distance(BaseModel):
    """To the nearest training events: the mean, the share of usual events that are nearer, its part of the score."""

    distance: float | None
    pct: float | None
    share: float


class Question(BaseModel):
    """A question about an event; `surprise` is −log10 of how rare the answer is."""

    name: str
    label: str
    surprise: float
    share: float


class Questions(BaseModel):
    """What a score is made of where questions are about more than one feature, and the plain facts behind it."""

    model_config = ConfigDict(extra="allow")
    terms: list[Question]


class KnownEvent(OtherEvent):
    """An earlier event of the agent: how far away, and how many hours apart in the day."""

    km: float | None
    hours: float


class UsualCategory(BaseModel):
    category: str
    days: int
    share: float


class Usually(BaseModel):
    """What the agent did on earlier days of the same weekday at this hour."""

    weekday: str | None
    minute: float | None
    days: int
    what: list[UsualCategory]


class Peers(BaseModel):
    """Of the `people` whose event began at this hour on the `days` before, how many were at such a place."""

    people: int
    alike: int
    days: int
    category: str


class Newcomer(BaseModel):
    """Somebody who was there at the same time and only so often before."""

    agent_id: str
    visits: int


class MissedVisit(BaseModel):
    """Somebody who is usually there at this hour (`days` of the `of` days of this kind before) and was not; `where`
    they were, null where nobody knows."""

    agent_id: str
    days: int
    of: int
    where: str | None


class Others(BaseModel):
    """How many other people were there at the same time; who of the first ten is usually elsewhere; and who is usually
    there, but was not."""

    people: int
    new: list[Newcomer]
    missed: list[MissedVisit]


class Company(BaseModel):
    """`peers` is null without a category, `others` without a place."""

    peers: Peers | None
    others: Others | None


class DayHere(BaseModel):
    """One day at the event's hour. `at` is the kind of place where the agent was, null where nobody knows; `here` says
    whether it was this place. `visits` counts visits to this place that began that day. `incident` says whether that
    day belongs to the event's own incident."""

    day: str
    at: str | None
    here: bool
    visits: int
    incident: bool


class DaysHere(BaseModel):
    """The days around an event; `today` is the day it began. `minute` is the middle of its hours on that day.
    `learnt_until` is the last day that the model learnt from, where the event was compared with that time."""

    minute: float
    today: str
    days: list[DayHere]
    learnt_until: str | None


class EventDetail(BaseModel):
    """`questions` is null where features show every question. `cases` are those that hold the incident. Only alerts
    have `company`. `days` is null for an event without a place or a length. `learned_score` is null where no learnt
    weights are in use."""

    event: EventAnswer
    features: list[FeatureAnswer]
    knn: Distance
    history_days: float | None
    learned_score: float | None
    questions: Questions | None
    nearest: list[KnownEvent]
    usually: Usually
    days: DaysHere | None
    company: Company | None
    verdicts: list[GivenVerdict]
    cases: list[CaseLine]
