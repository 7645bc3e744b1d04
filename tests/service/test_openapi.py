"""The OpenAPI description: complete, with examples, and true under thousands of made-up requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from service_example import PATIENCE, PlainScorer, a_stay, free_port, is_ready, until

from ustad.service.app import create_app
from ustad.service.settings import Settings

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install 'ustad[dev]'")


from schemathesis.checks import not_a_server_error  # noqa: E402  # only where it is installed
from schemathesis.specs.openapi.checks import (  # noqa: E402  # likewise
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

app = create_app(Settings(store="sqlite://"), PlainScorer())
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
    httpx.post(address + "/v1/events", json={"events": [a_stay(hours=4), a_stay("b", hours=7)]}, timeout=PATIENCE)
    yield address
    server.should_exit = True
    thread.join(PATIENCE)


@described.parametrize()
@settings(
    max_examples=25, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_made_up_request_gets_anything_but_a_documented_answer(case: Any, url: str) -> None:
    response = case.call(base_url=url, timeout=PATIENCE)
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


def test_every_body_has_an_example_and_every_route_an_explanation() -> None:
    content = app.openapi()
    for path, methods in content["paths"].items():
        for method, route in methods.items():
            assert route.get("description"), (method, path)
    for name in ("Fixes", "Events", "Verdict"):
        assert content["components"]["schemas"][name]["examples"], name


def test_every_route_of_the_v1_interface_documents_its_errors_in_the_one_shape() -> None:
    for path, methods in app.openapi()["paths"].items():
        if not path.startswith("/v1"):
            continue
        for route in methods.values():
            for status in ("401", "403", "422", "429"):
                answer = route["responses"][status]["content"]["application/json"]["schema"]
                assert answer == {"$ref": "#/components/schemas/ErrorAnswer"}
