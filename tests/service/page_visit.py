"""One visit to the page with a real browser, and what must never happen on it."""

from __future__ import annotations

from typing import Any

from service_example import PATIENCE


class Visit:
    """A page, and what must never happen on it: a console error, or a request that leaves the machine."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 720}, **options})
        self.page, self.url = self.context.new_page(), url
        self.page.set_default_timeout(1000 * PATIENCE)
        self.problems: list[str] = []
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.on(
            "request", lambda r: None if r.url.startswith((url, "data:", "blob:")) else self.problems.append(r.url)
        )

    def go(self, path: str = "/", wait: str = ".alerts li, .empty") -> Any:
        self.page.goto(self.url + path)
        self.page.wait_for_selector(wait)
        return self.page

    def close(self) -> None:
        self.context.close()
        assert self.problems == [], self.problems
