"""The application: everything a running service holds, put together, and the server around it.

`create_app(settings)` opens the store, loads the model, and returns a FastAPI application; `serve(settings)` runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from ustad import __version__
from ustad.clock import MICROSECONDS_PER_DAY
from ustad.config import ConfigError
from ustad.page import WEB
from ustad.page.ground import Ground, streets_in_store
from ustad.page.live_days import unusual_days_in_store
from ustad.page.map_file import is_extract, read_map_file
from ustad.page.runs import import_run, run_schema
from ustad.page.store import Store, now
from ustad.page.usual_weeks import import_usual_weeks
from ustad.schema import EventSchema
from ustad.service import errors
from ustad.service.channels import read_channels
from ustad.service.intake import Intake
from ustad.service.keys import Keys
from ustad.service.metrics import Metrics
from ustad.service.notices import Notifier
from ustad.service.openapi import complete
from ustad.service.pipeline import Pipeline, Scorer
from ustad.service.rates import Rates
from ustad.service.read_audit import ReadAudit
from ustad.service.request_checks import RequestChecks, content_policy
from ustad.service.retention import expire
from ustad.service.routes_cases import case_routes
from ustad.service.routes_counts import count_routes
from ustad.service.routes_devices import device_list_routes, device_routes
from ustad.service.routes_ingest import ingest_routes
from ustad.service.routes_map import map_routes
from ustad.service.routes_notices import notice_routes
from ustad.service.routes_page import page_routes
from ustad.service.routes_read import read_routes
from ustad.service.routes_rules import rule_routes
from ustad.service.routes_verdict import verdict_routes
from ustad.service.routes_weights import weight_routes
from ustad.service.settings import Settings
from ustad.service.stay_journal import Extraction
from ustad.service.writer_lock import WriterLock
from ustad.triage.unusual_days import UnusualDay

log = logging.getLogger("ustad.service")
RETENTION_S = 600.0
WATCH_S = 5.0
NOTIFY_S = 2.0
DAYS_S = 600.0
#: Seconds after the start until what can wait is read from the store: a start reads no more from a large one.
SETTLED_S = 20.0


class Service:
    """What the routes share. Without a scorer a finished run is shown and nothing new is taken."""

    def __init__(
        self, settings: Settings, store: Store, writer_lock: WriterLock, scorer: Scorer | None, *, schema: EventSchema
    ) -> None:
        self.settings, self.store, self.writer_lock = settings, store, writer_lock
        self.scorer, self.schema = scorer, schema
        self.keys = Keys(store, open_without=settings.is_loopback)
        extract = settings.map if settings.map is not None and is_extract(settings.map) else None
        self.map_file = read_map_file(settings.map) if settings.map is not None and extract is None else None
        self.ground = Ground(lambda: streets_in_store(store), extract)
        self.pipeline: Pipeline | None = None
        self.intake: Intake | None = None
        self.metrics = Metrics(lambda: self.intake.depth if self.intake else 0)
        self.metrics.watch_store(store)
        if scorer is not None:
            self.metrics.watch_model(scorer)
        self.weights = getattr(scorer, "weights", None)
        if self.weights is not None:
            self.weights.recall(store)
        self.rates = Rates(settings.rate_limit)
        self.audit = ReadAudit(settings.audit) if settings.audit is not None else None
        self.notifier = Notifier(store, read_channels(settings.notify)) if settings.notify is not None else None
        self.listeners: set[asyncio.Event] = set()
        self.stopping = self.usurped = False
        self.unusual_days: list[UnusualDay] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        if scorer is not None:
            config = getattr(scorer, "extraction", None)
            extraction = Extraction(store, config, settings.lateness_s) if config is not None else None
            self.pipeline = Pipeline(store, scorer, extraction)
            self.metrics.watch_drift(self.pipeline.drift)
            self.intake = Intake(self.pipeline, settings.micro_batch, settings.max_queue, self._note_batch)

    @property
    def local_only(self) -> bool:
        return self.settings.is_loopback and not self.keys.latest

    @property
    def takes_fixes(self) -> bool:
        """Whether stays are extracted here, so that phones can send."""
        return self.pipeline is not None and self.pipeline.extraction is not None

    def _note_batch(self, size: int, seconds: float, alerts: list[int]) -> None:
        """Called in the scoring thread after every micro-batch."""
        self.metrics.batch(size, seconds, len(alerts))
        if alerts:
            self.wake()

    def wake(self) -> None:
        """Tell every open stream to look for new alerts."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for listener in list(self.listeners):
            listener.set()

    def stop(self) -> None:
        """End the streams; called in the server's loop when it is told to stop."""
        self.stopping = True
        self._wake_all()

    async def run(self) -> AsyncIterator[None]:
        """Between start and stop of the server."""
        self._loop = asyncio.get_running_loop()
        if self.intake is not None:
            self.intake.start()
        tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._learn_ahead())]
        if self.intake is not None:
            tasks.append(
                asyncio.create_task(self._repeat(self.note_days, DAYS_S, "looking for unusual days", after=SETTLED_S))
            )
        if self.settings.keep_days:
            tasks.append(asyncio.create_task(self._repeat(self.expire, RETENTION_S, "retention")))
        if self.notifier is not None:
            tasks.append(asyncio.create_task(self._repeat(self.notifier.step, NOTIFY_S, "notices")))
        yield
        self.stop()
        for task in tasks:
            task.cancel()
        if self.intake is not None:
            await asyncio.to_thread(self.intake.stop)
        getattr(self.scorer, "close", lambda: None)()
        self.writer_lock.release()
        self.store.close()

    async def _watch(self) -> None:
        """Take nothing more once another service has the store, which a broken connection can lead to."""
        while True:
            await asyncio.sleep(WATCH_S)
            is_held = await asyncio.to_thread(self.writer_lock.holds)
            if is_held == self.usurped:
                self.usurped = not is_held
                log.error("the store is %s", "ours again" if is_held else "another service's, or does not answer")
                if self.intake is not None:
                    self.intake.paused = self.usurped

    async def _repeat(self, work: Callable[[], Any], pause: float, what: str, *, after: float = 0.0) -> None:
        """Work that comes again and again beside the requests. What fails is tried again next time."""
        await asyncio.sleep(after)
        while True:
            try:
                await asyncio.to_thread(work)
            except Exception as error:  # without its message, which could hold ids
                log.error("%s failed: %s at %s", what, type(error).__name__, errors.where(error))
            await asyncio.sleep(pause)

    async def _learn_ahead(self) -> None:
        await asyncio.sleep(SETTLED_S)
        self.ground.learn_ahead()

    def note_days(self) -> None:
        """Look which days were unusual for everybody by live scores."""
        with self.store.reading() as connection:
            self.unusual_days = unusual_days_in_store(connection)

    def expire(self) -> int:
        """Delete what is older than the settings keep."""
        before = now() - round(self.settings.keep_days * MICROSECONDS_PER_DAY)
        count = expire(self.store, before, self._let_go)
        if count:
            log.info("retention: %d events deleted", count)
        return count

    def _let_go(self, agents: list[str]) -> None:
        """Hold nothing in memory of agents who are no longer in the store: before anything new of them is scored."""
        self.ground.forget()
        if self.intake is not None and self.pipeline is not None:
            pipeline = self.pipeline
            self.intake.call(lambda: pipeline.forget(agents), agents)


def create_app(settings: Settings, scorer: Scorer | None = None) -> FastAPI:
    """The application for these settings; `scorer` takes the place of the settings' model."""
    store = Store(settings.store)
    try:
        writer_lock = WriterLock(store)
    except BaseException:
        store.close()
        raise
    try:
        return build(_make_service(settings, store, writer_lock, scorer))
    except BaseException:
        writer_lock.release()
        store.close()
        raise


def _make_service(settings: Settings, store: Store, writer_lock: WriterLock, scorer: Scorer | None) -> Service:
    if settings.weights is not None and settings.model is None and scorer is None:
        raise ConfigError("--weights needs a model that scores; in bulk it is `ustad score --weights`")
    schema = import_run(store, settings.run) if settings.run else None
    if scorer is None and settings.model is not None:
        from ustad.service.live import ModelScorer

        scorer = ModelScorer.load(settings)
    if settings.history is not None:
        if settings.run is not None or scorer is None:
            raise ConfigError("--history goes with a model alone; a finished run brings its own weeks")
        until = getattr(scorer, "trained_until", lambda: None)()
        import_usual_weeks(store, settings.history, scorer.schema, until)
    if scorer is not None:
        schema = scorer.schema
    service = Service(settings, store, writer_lock, scorer, schema=schema or run_schema(store))
    if not settings.is_loopback and not service.keys.all():
        raise ConfigError(
            f"refusing to listen on {settings.host} without a key; make one with --create-key NAME, "
            "or listen on 127.0.0.1"
        )
    return service


def build(service: Service) -> FastAPI:
    """Routes and layers around a service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async for _ in service.run():
            yield

    app = FastAPI(
        title="ustad", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        description="Scores events as they come, keeps alerts and verdicts. Every error has one shape; "
        "keys go into the header `Authorization: Bearer KEY`.",
    )  # fmt: skip
    app.state.service = service
    errors.install(app)
    if service.intake is not None:
        app.include_router(ingest_routes(service.schema))  # first: what is asked most is found soonest
        if service.takes_fixes:
            app.include_router(device_routes())
    app.include_router(read_routes())
    app.include_router(map_routes())
    app.include_router(count_routes())
    app.include_router(device_list_routes())
    app.include_router(verdict_routes())
    app.include_router(case_routes())
    app.include_router(rule_routes())
    app.include_router(weight_routes())
    app.include_router(notice_routes())
    app.include_router(page_routes(service.settings))
    complete(app)
    app.mount("/static", StaticFiles(directory=WEB), name="static")
    add_checks(app, service)
    return app


def add_checks(app: FastAPI, service: Service) -> None:
    """The layer that every request passes first."""
    app.add_middleware(
        RequestChecks, max_body=service.settings.max_body_bytes, policy=content_policy(service.settings.tiles),
        metrics=service.metrics, keys=service.keys, rates=service.rates, local_only=lambda: service.local_only,
        audit=service.audit, coarse_metres=service.settings.coarse_metres,
    )  # fmt: skip


def serve(settings: Settings, on_start: Callable[[], Any] = lambda: None) -> None:
    """Run until interrupted. `on_start` is called once everything is loaded and the service listens."""
    from ustad.service.server import bind, make_server, run_server

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("ustad").setLevel(logging.INFO)
    listener = bind(settings.host, settings.port)  # first: a port that is taken is said before a model is loaded
    app = create_app(settings)
    run_server(make_server(app, settings, on_start, app.state.service.stop), listener)
