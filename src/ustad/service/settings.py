"""What a running service is told: where the model and the store are, where it listens, and its limits.

In: options of `ustad serve`, and variables of its environment. Out: one frozen `Settings`; every limit is documented
where it stands.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ustad.config import ConfigError

_UNITS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Settings:
    """Everything that decides how the service behaves."""

    model: Path | None = setting(None, "a model directory; none: a finished run is shown, nothing new is scored")
    run: Path | None = setting(None, "a directory with scores/ (and data/) of a finished run to show")
    history: Path | None = setting(
        None, "the data that the model was trained on: usual weeks to compare live events with"
    )
    store: str = setting("sqlite:///ustad.db", "SQLAlchemy URL: sqlite:///FILE or postgresql://USER@HOST/NAME")
    host: str = setting("127.0.0.1", "the address to listen on; beyond loopback only with a key")
    port: int = setting(8350, "the port to listen on")
    device: str = setting("auto", "auto, cpu or cuda")
    tiles: str = setting("", "URL of raster map tiles with {z}/{x}/{y}; empty: streets from the data's own trips")
    map: Path | None = setting(None, "a map in one file: tiles (.pmtiles) or an OpenStreetMap extract (.osm.pbf)")
    pois: Path | None = setting(None, "a table of POIs that names the places of stays found in live fixes")
    timezone: str | None = setting(None, "the zone of stays that carry none and whose place does not tell it")
    alerts_per_day: float = setting(0.0, "live scores: about this many alerts a day; 0: one usual event in a thousand")
    notify: Path | None = setting(None, "a YAML file of webhooks, Alertmanagers and e-mail that are told of alerts")
    weights: Path | None = setting(None, "live alerts by what verdicts taught: a file that `ustad learn` wrote")
    audit: Path | None = setting(
        None, "a file that gets a line for each request that reads data: when, which key, what"
    )
    coarse_metres: float = setting(1000.0, "cells of positions for keys that see no exact ones; 0: no positions at all")
    least_people: int = setting(10, "fewer people in an hour and a cell are not counted in /v1/counts")
    keep_days: float = setting(0.0, "events that ended longer ago than this many days are deleted; 0: kept")
    lateness_s: float = setting(0.0, "fixes may come out of order by this many seconds")
    ahead_days: float = setting(1.0, "a time so many days ahead of this machine's clock is refused; 0: none is")
    max_event_days: float = setting(366.0, "an event that lasts longer is refused; 0: none is")
    proxy_headers: str = setting("", "addresses of proxies whose X-Forwarded-For and -Proto are believed; empty: none")
    rate_limit: float = setting(200.0, "requests a second of one key, over ten seconds; more get 429; 0: no limit")
    head_seconds: float = setting(10.0, "a request whose head takes longer to arrive is cut off; 0: none is")
    body_seconds: float = setting(60.0, "a request whose body takes longer to arrive is cut off; 0: none is")
    max_connections_per_address: int = setting(200, "open connections of one address, proxies left out; 0: no limit")
    max_body_bytes: int = setting(4_000_000, "a larger request body is refused with 413")
    max_batch: int = setting(2_000, "more events in one request are refused with 413")
    max_fixes: int = setting(20_000, "more fixes in one request are refused with 413")
    max_queue: int = setting(4_000, "more events waiting to be scored are answered with 429 and Retry-After")
    workers: int = setting(1, "processes that score side by side, each some of the agents; not with the preset paper")
    micro_batch: int = setting(128, "events scored together, across requests")
    max_live_agents: int = setting(20_000, "agents whose window is held in memory; the others are read when they come")

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, (int, float)) and value < 0:
                raise ConfigError(f"{f.name} must be 0 or more, got {value!r}")
        for name in ("max_body_bytes", "max_batch", "max_fixes", "max_queue", "micro_batch", "least_people", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, got {getattr(self, name)!r}")

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


#: Settings without an option of the command line.
LIMITS = (
    "max_event_days", "head_seconds", "body_seconds", "max_connections_per_address", "max_body_bytes", "max_batch",
    "max_fixes", "max_queue", "micro_batch", "max_live_agents", "coarse_metres", "least_people",
)  # fmt: skip


def limits_in(environment: Mapping[str, str], prefix: str) -> dict[str, float]:
    """The limits that variables set: with the prefix `USTAD_SERVE_`, `USTAD_SERVE_MAX_QUEUE=8000`. Empty ones do not
    count."""
    limits: dict[str, float] = {}
    for f in fields(Settings):
        text = environment.get(prefix + f.name.upper(), "").strip()
        if f.name in LIMITS and text:
            try:
                limits[f.name] = int(text) if isinstance(f.default, int) else float(text)
            except ValueError as error:
                kind = "a whole number" if isinstance(f.default, int) else "a number"
                raise ConfigError(f"{prefix}{f.name.upper()} takes {kind}, got '{text}'") from error
    return limits


def days_of(text: str, option: str = "--keep") -> float:
    """`90d`, `12w` or `36h` as days."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([hdw])\s*", text)
    if not match:
        raise ConfigError(f"{option} takes a number of hours, days or weeks such as 36h, 90d or 12w, got '{text}'")
    return float(match[1]) * _UNITS[match[2]] / _UNITS["d"]
