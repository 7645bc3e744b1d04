"""What maps stand on: the layers of a box, and the archive of tiles that the service was given."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import FileResponse, JSONResponse

from ustad.service import messages_map as page
from ustad.service.errors import InvalidError, NotFoundError
from ustad.service.keys import COARSE, READERS, Caller, needs
from ustad.service.openapi import ERRORS

Look = Annotated[Caller, Depends(needs(*READERS))]
Longitude = Annotated[float, Query(ge=-180, le=180, allow_inf_nan=False)]
Latitude = Annotated[float, Query(ge=-90, le=90, allow_inf_nan=False)]


def map_routes() -> APIRouter:
    router = APIRouter()
    router.get("/v1/ground", response_model=page.Ground, responses=ERRORS, tags=["read"])(ground)
    router.get("/v1/map.pmtiles", include_in_schema=False)(map_file)
    return router


def ground(
    request: Request, caller: Look, west: Longitude = -180, south: Latitude = -85, *, east: Longitude = 180,
    north: Latitude = 85,
) -> JSONResponse:  # fmt: skip
    """Land, waters, borders, streets and names within a box, of the whole world where none is given. Without a map of
    its own the service draws streets that at least five people passed."""
    if west >= east or south >= north:
        raise InvalidError("a box has its west below its east and its south below its north")
    # As it is: checking each of ten thousand points against the description would take most of the time.
    layers = request.app.state.service.ground.near((west, south, east, north))
    if COARSE in caller.roles and layers["streets_from"] == "trips":  # exact positions of people, if of several
        layers = {**layers, "streets": [], "streets_from": None}
    return JSONResponse(layers)


def map_file(request: Request, caller: Look) -> FileResponse:
    """The archive of tiles; browsers ask for ranges of it."""
    archive = request.app.state.service.map_file
    if archive is None:
        raise NotFoundError("the service was given no map; start it with --map FILE.pmtiles")
    return FileResponse(archive.path, media_type="application/octet-stream", headers={"Cache-Control": "no-cache"})
