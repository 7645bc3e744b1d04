"""The page of devices in a real Chromium: who was heard of when, and what to do where there is none yet."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from page_visit import Visit
from service_example import PATIENCE

from ustad.service.keys import create_key

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'ustad[dev]'")


def test_the_page_shows_when_each_device_was_last_heard_of(browser: Any, serve_here: Any) -> None:
    server = serve_here()
    store = server.service.store
    keys = {name: create_key(store, name, [], agent=f"agent of {name}") for name in ("silent phone", "new phone")}
    reader = {"Authorization": f"Bearer {create_key(store, 'analyst', ['read'])}"}
    server.service.keys.read_again()
    fix = {"_type": "location", "tst": 1_709_536_500, "lat": 60.0, "lon": 25.0, "batt": 64}
    sender = {"Authorization": f"Bearer {keys['new phone']}"}
    sent = httpx.post(server.url + "/device/owntracks", json=fix, headers=sender, timeout=PATIENCE)
    assert sent.status_code == 200
    visit = Visit(browser, server.url, extra_http_headers=reader, timezone_id="Europe/Helsinki")
    page = visit.go("/", wait="#trail a")
    page.click("#trail >> text=Devices")
    page.wait_for_selector("#devices tbody tr")
    rows = [row.inner_text().split("\t") for row in page.locator("#devices tbody tr").all()]
    assert [row[0].strip() for row in rows] == ["silent phone", "new phone"]
    assert [cell.strip() for cell in rows[0][1:]] == ["agent of silent phone", "–", "never", "never", "–", "0", "0"]
    assert rows[1][2].strip() == "OwnTracks"
    assert "ago" in rows[1][3]
    assert "Mon 4 Mar 09:15" in rows[1][4].replace(",", ""), "the time of the fix, where the reader is"
    assert [cell.strip() for cell in rows[1][5:]] == ["64 %", "1", "0"]
    assert "1–2 of 2 devices" in page.inner_text(".pager")
    assert page.title().startswith("Devices")
    page.keyboard.press("Escape")
    page.wait_for_url(server.url + "/")
    visit.close()


def test_without_a_device_the_page_says_what_to_do(browser: Any, serve_here: Any) -> None:
    visit = Visit(browser, serve_here().url)
    page = visit.go("/devices", wait=".empty")
    assert "--create-key" in page.inner_text(".empty")
    visit.close()


def test_the_page_of_devices_is_for_those_who_may_read(serve_here: Any) -> None:
    server = serve_here()
    key = create_key(server.service.store, "phone", [], agent="anna")
    server.service.keys.read_again()
    for path in ("/devices", "/v1/devices"):
        assert httpx.get(server.url + path, timeout=PATIENCE).status_code == 401
        asked = httpx.get(server.url + path, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE)
        assert asked.status_code == 403
