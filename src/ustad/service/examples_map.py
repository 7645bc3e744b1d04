"""Examples of what maps are answered."""

from __future__ import annotations

from typing import Any

GROUND: dict[str, Any] = {
    "box": [24.9, 60.1, 25.0, 60.2],
    "land": [[[24.9, 60.1], [24.9, 60.2], [25.0, 60.2], [24.9, 60.1]]],
    "lakes": [],
    "rivers": [[[24.97, 60.2], [24.98, 60.22]]],
    "borders": [],
    "names": [{"name": "Helsinki", "lon": 24.932, "lat": 60.178, "rank": 0}],
    "streets": [{"size": 1, "path": [[24.93, 60.17], [24.94, 60.171]]}],
    "streets_from": "trips",
    "note": "Natural Earth (public domain)",
}
