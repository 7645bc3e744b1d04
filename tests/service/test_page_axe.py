"""axe in a real Chromium: nothing on the page that is serious for somebody with a screen reader or weak sight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from page_visit import Visit
from service_example import PATIENCE, Server

AXE = Path(__file__).parent / ".axe" / "axe.min.js"
pytestmark = pytest.mark.skipif(not AXE.exists(), reason="axe is not installed; `make setup-tests` installs it")
SIZES = ({"width": 1440, "height": 900}, {"width": 390, "height": 844})
SERIOUS = ("serious", "critical")
RUN = """() => axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.map(
  (v) => ({ impact: v.impact, what: v.id, where: v.nodes.map((n) => n.target.join(" ")).slice(0, 4) })))"""


@pytest.fixture(scope="module")
def addresses(server: Server) -> list[tuple[str, str]]:
    """Addresses of the views, each with what is there once it is drawn."""
    alert = httpx.get(server.url + "/v1/alerts", timeout=PATIENCE).json()["alerts"][0]
    agent = f"/agent/{alert['agent_id']}"
    return [
        ("/", ".alerts li"), (f"{agent}?event={alert['id']}", ".drawer .questions"), (agent, ".map[data-drawn]"),
        ("/cases", "main .panel"), ("/rules", "main .panel"),
    ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_serious_fault(browser: Any, server: Server, addresses: Any, scheme: str) -> None:
    visit = Visit(browser, server.url, color_scheme=scheme)
    faults = []
    for path, ready in addresses:
        page = visit.go(path, ready)
        page.evaluate(AXE.read_text())
        for size in SIZES:
            page.set_viewport_size(size)
            found = page.evaluate(RUN)
            faults += [(path.partition("?")[0], size["width"], v) for v in found if v["impact"] in SERIOUS]
    visit.close()
    assert faults == []
