"""Cases, the watchlist and saved views over the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from ustad.service.login import own_address
from ustad.service.messages import EventAnswer, Moment, Strict, Text, _printable, _text

State = Literal["open", "watching", "explained", "confirmed", "wrong"]
Person = Annotated[str, Field(max_length=128), AfterValidator(_printable)]
Note = Annotated[str, Field(max_length=4000), AfterValidator(_text)]
EventIds = Annotated[list[Annotated[str, Field(max_length=20)]], Field(max_length=50)]


def _of_this_page(text: str) -> str:
    if own_address(text) != text:
        raise ValueError("an address of this service's page is needed, such as /?kind=novel")
    return text


NEW_CASE = {"incidents": ["4611686018427387905"], "title": "Night visits"}


class NewCase(Strict, json_schema_extra={"examples": [NEW_CASE]}):
    """A case of one or several incidents, each given by the id of one of its events."""

    incidents: Annotated[EventIds, Field(min_length=1)]
    title: Text = ""
    assignee: Person = ""
    note: Note = ""


class CaseChange(Strict, json_schema_extra={"examples": [{"state": "watching", "assignee": "morning shift"}]}):
    """What is to change; what is not given stays. `explained`, `confirmed` and `wrong` are verdicts on every incident
    of the case; `explained` needs a reason, and holds until a date."""

    state: State | None = None
    assignee: Person | None = None
    title: Text | None = None
    note: Note | None = None
    attach: EventIds = Field(default_factory=list)
    detach: EventIds = Field(default_factory=list)
    reason: Annotated[str, Field(max_length=500), AfterValidator(_printable)] = ""
    until: Moment | None = None


class Watch(Strict, json_schema_extra={"examples": [{"watched": True, "note": "moved house"}]}):
    """Whether to watch a person, and why."""

    watched: bool
    note: Note = ""


class SavedView(Strict, json_schema_extra={"examples": [{"name": "new places", "address": "/?kind=novel&state=open"}]}):
    """A view of the page by name; a name that is there already is saved anew."""

    name: Annotated[Person, Field(min_length=1)]
    address: Annotated[str, Field(max_length=2000), AfterValidator(_of_this_page)]


# ------------------------------------------------------------------------------------------------ answers
class CaseLine(BaseModel):
    id: str
    title: str
    state: str
    assignee: str
    opened_at: str
    opened_by: str
    changed_at: str
    agents: list[str]
    n_incidents: int


class CasePage(BaseModel):
    total: int
    offset: int
    cases: list[CaseLine]


class CaseEntry(BaseModel):
    """One line of a history: who did what (`opened`, `state`, `assigned`, `titled`, `note`, `attached`, `detached`,
    `verdict`, `looked`). Nothing is ever taken out of it but with a person who is forgotten."""

    at: str
    by: str
    act: str
    text: str
    agent_id: str | None
    event_id: str | None


class CaseAnswer(BaseModel):
    """`incidents` are the events that lead them, by time."""

    case: CaseLine
    incidents: list[EventAnswer]
    history: list[CaseEntry]


class WatchedAgent(BaseModel):
    agent_id: str
    note: str
    by: str
    at: str


class Watchlist(BaseModel):
    watched: list[WatchedAgent]


class SavedViewAnswer(BaseModel):
    name: str
    address: str
    by: str
    at: str


class SavedViews(BaseModel):
    views: list[SavedViewAnswer]
