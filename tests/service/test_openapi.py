"""The OpenAPI description: complete, with examples, and true under hundreds of made-up requests. `USTAD_MORE=50` makes
so many times as many; tests/fuzz changes real requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from service_example import PATIENCE, PlainScorer, a_stay, free_port, is_ready, until

from ustad.schema import EventSchema, Feature
from ustad.service.app import create_app
from ustad.service.errors import CODES
from ustad.service.messages import events_model
from ustad.service.settings import Settings

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install 'ustad[dev]'")
jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="it comes with schemathesis: pip install 'ustad[dev]'")


from schemathesis.checks import not_a_server_error  # noqa: E402  # only where it is installed
from schemathesis.specs.openapi.checks import (  # noqa: E402  # likewise
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

app = create_app(Settings(store="sqlite://"), PlainScorer())
MORE = int(os.environ.get("USTAD_MORE", "1"))
described = schemathesis.openapi.from_dict(app.openapi()).exclude(path="/v1/alerts/stream")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in a thread, with something to find in it."""
    store = f"sqlite:///{tmp_path_factory.mktemp('api') / 'x.db'}"
    port = free_port()
    served = create_app(Settings(store=store), PlainScorer())
    server = uvicorn.Server(uvicorn.Config(served, port=port, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{port}"
    assert until(lambda: is_ready(address))
    sent = {"events": [a_stay(hours=4), a_stay("b", hours=7)]}
    events = httpx.post(address + "/v1/events", json=sent, timeout=PATIENCE).json()["events"]
    assert httpx.post(address + "/v1/cases", json={"incidents": [events[0]["id"]]}, timeout=PATIENCE).json()["case"]
    yield address
    server.should_exit = True
    thread.join(PATIENCE)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """One connection for hundreds of requests."""
    with requests.Session() as session:
        yield session


@described.parametrize()
@settings(
    max_examples=12 * MORE, deadline=None, derandomize=MORE == 1, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_made_up_request_gets_anything_but_a_documented_answer(
    case: Any, url: str, session: requests.Session
) -> None:
    response = case.call(base_url=url, session=session, timeout=PATIENCE)
    assert response.status_code < 500, response.text
    case.validate_response(
        response,
        checks=(
            not_a_server_error,
            response_schema_conformance,
            status_code_conformance,
            content_type_conformance,
        ),
    )


def test_every_route_but_health_says_how_a_key_is_sent() -> None:
    content = app.openapi()
    schemes = content["components"]["securitySchemes"]
    assert (schemes["key"]["type"], schemes["key"]["scheme"]) == ("http", "bearer")
    assert (schemes["cookie"]["type"], schemes["cookie"]["name"]) == ("apiKey", "ustad_key")
    for path, methods in content["paths"].items():
        for route in methods.values():
            asked = route.get("security", content["security"])
            assert asked == ([] if path in ("/healthz", "/readyz") else [{"key": []}, {"cookie": []}]), path


def test_every_body_has_an_example_and_every_route_an_explanation() -> None:
    content = app.openapi()
    for path, methods in content["paths"].items():
        for method, route in methods.items():
            assert route.get("description"), (method, path)
    for name in ("Fixes", "Events", "Verdict", "NewCase", "CaseChange", "Watch", "SavedView", "NewRule"):
        assert content["components"]["schemas"][name]["examples"], name


def test_every_route_of_the_v1_interface_documents_its_errors_in_the_one_shape() -> None:
    for path, methods in app.openapi()["paths"].items():
        if not path.startswith("/v1"):
            continue
        for route in methods.values():
            for status in ("401", "403", "422", "429"):
                answer = route["responses"][status]["content"]["application/json"]["schema"]
                assert answer == {"$ref": "#/components/schemas/ErrorAnswer"}


def described_answers() -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """(method, path, status, media type, description) of every answer with a body."""
    for path, methods in app.openapi()["paths"].items():
        for method, route in methods.items():
            for status, told in route["responses"].items():
                for media, content in told.get("content", {}).items():
                    yield method, path, status, media, content


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with a value by a schema of the description."""
    whole = {**schema, "components": app.openapi()["components"]}
    return [e.message for e in jsonschema_rs.Draft202012Validator(whole).iter_errors(value)]


def test_every_answer_and_every_error_has_an_example_of_its_own_form() -> None:
    found = list(described_answers())
    assert {(method, path) for method, path, *_ in found} == {
        (method, path) for path, methods in app.openapi()["paths"].items() for method in methods
    }, "a route without any described answer"
    for method, path, status, media, content in found:
        assert "example" in content, (method, path, status)
        if media == "application/json":
            assert "$ref" in content["schema"], (method, path, status, "no form is described")
        assert problems(content["schema"], content["example"]) == [], (method, path, status)


def test_an_example_with_a_wrong_or_missing_field_would_be_noticed() -> None:
    for method, path, status, media, content in described_answers():
        if media == "application/json":
            assert problems(content["schema"], {}), (method, path, status)
            wrong = {**content["example"], next(iter(content["example"])): {"neither": "this"}}
            assert problems(content["schema"], wrong), (method, path, status)


def test_the_example_of_an_error_is_of_its_status() -> None:
    for _, path, status, _, content in described_answers():
        if status[0] in "45":
            assert content["example"]["error"]["code"] == CODES[int(status)], (path, status)


def test_examples_have_the_fields_of_real_answers(url: str) -> None:
    """Everything that can be asked with what is in the store, beside its example, field by field."""
    alert = httpx.get(url + "/v1/alerts", timeout=PATIENCE).json()["alerts"][0]
    names = {"agent_id": alert["agent_id"], "event_id": alert["id"], "case_id": "1"}
    for method, path, status, media, content in described_answers():
        if (method, status, media) != ("get", "200", "application/json"):
            continue
        real = httpx.get(url + path.format(**names), timeout=PATIENCE)
        assert real.status_code == 200, path
        assert fields(real.json()) >= {f for f in fields(content["example"]) if "[" not in f}, path
        assert fields(real.json()) - fields(content["example"]) == set(), path


def fields(value: Any, where: str = "") -> set[str]:
    """Names of all fields, those of what may be missing (in lists, in null) marked with a bracket."""
    if isinstance(value, dict):
        own = {f"{where}.{name}" for name in value}
        return own.union(*(fields(v, f"{where}.{name}[?]") for name, v in value.items()))
    if isinstance(value, list) and value:
        return set().union(*(fields(v, where) for v in value))
    return set()


def test_the_body_of_any_schema_has_an_example_that_it_takes() -> None:
    features = (
        Feature("amount", "numeric", transform="log", label="amount"),
        Feature("shop", "categorical", label="shop"),
        Feature("where", "place", ("lat", "lon"), label="where"),
    )
    for more in ({}, {"end": "finished", "event_id": "number"}):
        schema = EventSchema(name="cards", entity="card", time="time", features=features, **more)
        body = events_model(schema)
        (example,) = body.model_json_schema()["examples"]
        (event,) = body.model_validate(example).events
        assert set(example["events"][0]) == set(event.model_dump(exclude_none=True))
        assert {"card", "time", "amount", "shop", "lat", "lon", *more.values()} == set(example["events"][0])
