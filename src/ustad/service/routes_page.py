"""The analyst's page: one HTML file for every address, its static files, and logging in."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse

from ustad.page import WEB
from ustad.service.keys import READERS, needs
from ustad.service.login import log_in, log_out
from ustad.service.settings import Settings


def page_routes(settings: Settings) -> APIRouter:
    """`/` is the overview, `/agent/ID` an agent; what they show is in the address."""
    router = APIRouter(include_in_schema=False)

    async def page() -> FileResponse:
        return FileResponse(WEB / "index.html", media_type="text/html", headers={"Cache-Control": "no-cache"})

    for path in ("/", "/agent/{agent_id:path}"):
        router.get(path, dependencies=[Depends(needs(*READERS))])(page)
    for path in ("/run", "/devices", "/cases", "/case/{case_id}", "/rules"):
        router.get(path, dependencies=[Depends(needs("read"))])(page)
    router.post("/login")(log_in)
    router.post("/logout")(log_out)
    return router
