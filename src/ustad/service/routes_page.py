"""The analyst's page: one HTML file for every address, its static files, and logging in."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse

from ustad.page import WEB
from ustad.service.keys import needs
from ustad.service.login import log_in, log_out
from ustad.service.settings import Settings


def page_routes(settings: Settings) -> APIRouter:
    """`/` is the overview, `/agent/ID` an agent; what they show is in the address."""
    router = APIRouter(include_in_schema=False)
    may_read = [Depends(needs("read"))]

    async def page() -> FileResponse:
        return FileResponse(WEB / "index.html", media_type="text/html", headers={"Cache-Control": "no-cache"})

    for path in ("/", "/run", "/devices", "/cases", "/case/{case_id}", "/rules", "/agent/{agent_id:path}"):
        router.get(path, dependencies=may_read)(page)
    router.post("/login")(log_in)
    router.post("/logout")(log_out)
    return router
