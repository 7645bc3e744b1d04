"""`ustad serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ustad.cli.shared import err, out
from ustad.config import ConfigError
from ustad.data_error import DataError

#: What the names of variables begin with. Not USTAD_ alone: Kubernetes sets USTAD_PORT where a service is called ustad.
ENVIRONMENT = "USTAD_SERVE_"
EXTRA = "the service needs more libraries; install them with: pip install 'ustad[service]'"


def setting(option: str, about: str) -> Any:
    """An option that the environment can give too."""
    return typer.Option(option, help=about, envvar=ENVIRONMENT + option.strip("-").replace("-", "_").upper())


def serve(
    target: Annotated[
        Path,
        typer.Argument(help="A model directory, or a finished run such as runs/demo.", envvar=ENVIRONMENT + "TARGET"),
    ],
    store: Annotated[
        str | None, setting("--store", "sqlite:///FILE or postgresql://USER@HOST/NAME; a file by default.")
    ] = None,
    host: Annotated[str, setting("--host", "Address to listen on. All but loopback need a key.")] = "127.0.0.1",
    port: Annotated[int, setting("--port", "Port to listen on.")] = 8350,
    *,
    keep: Annotated[str | None, setting("--keep", "Delete events older than this: 90d, 12w, 36h.")] = None,
    alerts_per_day: Annotated[float, setting("--alerts-per-day", "With a model: about this many alerts a day.")] = 0,
    tiles: Annotated[str, setting("--tiles", "URL of raster map tiles with {z}/{x}/{y}.")] = "",
    history: Annotated[Path | None, setting("--history", "With a model: its training data, to compare with.")] = None,
    map: Annotated[Path | None, setting("--map", "A map in one file: .pmtiles or .osm.pbf.")] = None,
    pois: Annotated[Path | None, setting("--pois", "POIs that name the places of live fixes.")] = None,
    timezone: Annotated[str | None, setting("--timezone", "Time zone of stays whose place has none.")] = None,
    lateness: Annotated[float, setting("--lateness", "Wait for late fixes this many seconds.")] = 0.0,
    ahead: Annotated[str, setting("--ahead", "Refuse times this far ahead of the clock: 1d; 0d: never.")] = "1d",
    rate_limit: Annotated[float, setting("--rate-limit", "Most requests a second of one key; 0: no limit.")] = 200.0,
    proxy_headers: Annotated[
        str, setting("--proxy-headers", "Addresses of proxies whose X-Forwarded-For is believed.")
    ] = "",
    notify: Annotated[Path | None, setting("--notify", "Send alerts on by webhook or e-mail (a YAML file).")] = None,
    audit: Annotated[Path | None, setting("--audit", "Log which key read what, and when, to this file.")] = None,
    weights: Annotated[
        Path | None, setting("--weights", "With a model: choose alerts by these learnt weights.")
    ] = None,
    workers: Annotated[int, setting("--workers", "With a model: score in so many processes.")] = 1,
    create_key: Annotated[str | None, typer.Option("--create-key", help="Make a key of this name and exit.")] = None,
    roles: Annotated[
        str | None,
        typer.Option(
            "--roles",
            help="Roles of the new key: ingest, read (default), verdict, admin, metrics; or read-coarse, read-counts.",
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Make the new key a phone's: it may send for this agent alone.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="When the new key expires: after 30d (12w, 36h), or on 2027-01-31.")
    ] = None,
    remove_key: Annotated[
        str | None, typer.Option("--remove-key", help="Remove the key of this name and exit.")
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], setting("--device", "Where to compute; auto: on a GPU if there is one.")
    ] = "auto",
) -> None:
    """Score events as they come and show the analyst's page; or show a finished run.

    Every setting can come from the environment too: USTAD_SERVE_STORE is --store. An option counts before it.

    Example: `ustad serve runs/demo` or `ustad serve runs/demo/model --store sqlite:///live.db`
    """
    try:
        from ustad.page.store import Store
        from ustad.service.app import serve as run_service
        from ustad.service.keys import create_key as make_key
        from ustad.service.keys import expiry_of
        from ustad.service.keys import remove_key as drop_key
        from ustad.service.settings import days_of
    except ImportError as error:
        raise DataError(EXTRA) from error

    settings = settings_for(
        target, store, host=host, port=port, tiles=tiles, map=map, history=history, device=device,
        pois=pois, timezone=timezone, alerts_per_day=alerts_per_day, lateness_s=lateness,
        keep_days=days_of(keep) if keep else 0.0, ahead_days=days_of(ahead, "--ahead"), rate_limit=rate_limit,
        proxy_headers=proxy_headers, notify=notify, weights=weights, audit=audit, workers=workers,
    )  # fmt: skip
    if create_key is not None:
        until = expiry_of(expires) if expires else None
        roles = roles or ("read" if agent is None else "")
        names = [r.strip() for r in roles.split(",") if r.strip()]
        key = make_key(Store(settings.store), create_key, names, until, agent=agent)
        ends = f" It expires at {until:%Y-%m-%d %H:%M %Z}." if until else ""
        err.print(f"This key is shown once; only its hash is stored.{ends}")
        typer.echo(key)
        return
    for option, value in (("--expires", expires), ("--agent", agent)):
        if value is not None:
            raise ConfigError(f"{option} is for a new key: give --create-key NAME too")
    if remove_key is not None:
        drop_key(Store(settings.store), remove_key)
        out.print(f"the key '{remove_key}' is void")
        return
    address = f"http://{'localhost' if settings.is_loopback else host}:{port}"
    run_service(settings, lambda: out.print(f"ready: {address}  (stop with Ctrl-C)"))


def settings_for(target: Path, store: str | None, **more: object):  # type: ignore[no-untyped-def]  # the service is optional
    """Settings for a model directory or a finished run, each with its own store by default. Limits that have no option
    come from the environment."""
    from ustad.page.runs import fingerprint, scores_directory
    from ustad.service.settings import Settings, limits_in
    from ustad.versions import find_model

    more = {**limits_in(os.environ, ENVIRONMENT), **more}
    target = find_model(target)
    if (target / "manifest.json").exists():
        return Settings(model=target, store=store or "sqlite:///ustad.db", **more)  # type: ignore[arg-type]  # options by name
    if scores_directory(target) is None:
        raise DataError(
            f"{target}: neither a model directory nor a finished run; make one with `ustad train` or `ustad demo`"
        )
    model = target / "model" if (target / "model" / "manifest.json").exists() else None
    default = f"sqlite:///{target / f'service-{fingerprint(target)[:8]}.db'}"
    return Settings(run=target, model=model, store=store or default, **more)  # type: ignore[arg-type]  # options by name
