"""How many people were where, hour by hour, for those who need to know of nobody: as JSON, or as a table (CSV)."""

from __future__ import annotations

import csv
import io
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel

from ustad.clock import EPOCH, iso_date
from ustad.page.counts import count_people
from ustad.page.queries import span
from ustad.service.errors import InvalidError
from ustad.service.keys import COUNTS, READERS, Caller, needs
from ustad.service.openapi import ERRORS, text_answer

Count = Annotated[Caller, Depends(needs(*READERS, COUNTS))]
MOST_DAYS, USUAL_DAYS = 31, 7
COLUMNS = ("day", "hour", "lat", "lon", "people")


class CellCount(BaseModel):
    """At least so many `people` had an event in this hour of this local day in the cell around `lat` and `lon`."""

    day: str
    hour: int
    lat: float | None
    lon: float | None
    people: int


class Counts(BaseModel):
    """Hours and cells with at least `least` people; counts are rounded down to multiples of it. A cell is about
    `metres` wide and high; 0: everything is one cell, and `lat` and `lon` are null."""

    first: str | None
    last: str | None
    metres: float
    least: int
    counts: list[CellCount]


CSV_EXAMPLE = "day,hour,lat,lon,people\r\n2024-02-05,8,60.168537,24.933403,120\r\n"
FIRST_DAY = (date.min - EPOCH).days


def count_routes() -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["read"], responses=ERRORS)
    table = text_answer("text/csv", CSV_EXAMPLE, "the counts, as JSON or as a table")
    router.get("/counts", response_model=Counts, responses=table)(counts)
    return router


def counts(
    request: Request, caller: Count, first: date | None = None,
    last: date | None = None, *, form: Literal["json", "csv"] = "json",
) -> Any:  # fmt: skip
    """How many people were where, hour by hour of local days; fewer than the service's `least_people` are never
    counted. The latest week where no days are given. `form=csv` gives a file."""
    service = request.app.state.service
    metres, least = service.settings.coarse_metres, service.settings.least_people
    with service.store.reading() as connection:
        days = span(connection)
        end = (last - EPOCH).days if last else (days[1] if days else None)
        begin = (first - EPOCH).days if first else (max(end - USUAL_DAYS + 1, FIRST_DAY) if end is not None else None)
        if begin is None or end is None:
            rows = []
        elif end - begin >= MOST_DAYS:
            raise InvalidError(f"at most {MOST_DAYS} days go into one answer")
        else:
            rows = list(count_people(connection, begin, end, metres=metres, least=least))
    if form == "csv":
        return Response(_csv(rows), media_type="text/csv")
    ends = (iso_date(day) if day is not None else None for day in (begin, end))
    return dict(zip(("first", "last"), ends, strict=True)) | {"metres": metres, "least": least, "counts": rows}


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
