"""Examples of answers about cases, the watchlist and saved views."""

from __future__ import annotations

from ustad.service.examples import JUDGED, Example

_LINE: Example = {
    "id": "12", "title": "Night visits", "state": "watching", "assignee": "morning shift",
    "opened_at": "2024-02-06T07:28:00Z", "opened_by": "morning shift", "changed_at": "2024-02-06T07:30:00Z",
    "agents": ["a-17"], "n_incidents": 1,
}  # fmt: skip
_ENTRY: Example = {
    "at": "2024-02-06T07:30:00Z", "by": "morning shift", "act": "note", "text": "asked the family",
    "agent_id": None, "event_id": None,
}  # fmt: skip
CASES: Example = {"total": 1, "offset": 0, "cases": [_LINE]}
CASE: Example = {"case": _LINE, "incidents": [JUDGED], "history": [_ENTRY]}
WATCHLIST: Example = {"watched": [
    {"agent_id": "a-17", "note": "moved house", "by": "morning shift", "at": "2024-02-06T07:30:00Z"},
]}  # fmt: skip
VIEWS: Example = {"views": [
    {"name": "new places", "address": "/?kind=novel&state=open", "by": "morning shift", "at": "2024-02-06T07:30:00Z"},
]}  # fmt: skip
