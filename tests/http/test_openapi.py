"""Schemathesis over the OpenAPI document: responses to valid and invalid requests are as documented."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import FailureGroup

from mqgate.testing.server_process import ServerProcess
from random_examples import TIMES

pytestmark = pytest.mark.slow

ARROW = "application/vnd.apache.arrow.stream"
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
KNOWN = {"topic": "orders", "producer": "shop", "group": "workers", "queue": "local:0"}
CHECKS: list[Any] = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
]
BOUNDED = settings(
    max_examples=8 * TIMES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A gateway with registered names and messages."""
    server = ServerProcess(tmp_path_factory.mktemp("openapi"), MQGATE_SQLITE_SYNCHRONOUS="normal").start()
    with httpx.Client(base_url=server.url) as api:
        for path, body in {
            "topics/orders": {"queues": 2},
            "producers/shop": {"topic": "orders"},
            "groups/workers": {"topic": "orders", "mode": "queue"},
            "groups/all": {"topic": "orders", "mode": "broadcast"},
            "groups/singles": {"topic": "orders"},
        }.items():
            api.put(f"/v1/{path}", json=body).raise_for_status()
        for number in range(20):
            api.post("/v1/topics/orders/messages", json={"body": f"{number}", "key": "k"}).raise_for_status()
    yield server
    server.stop()


def aim(case: Any) -> None:
    """Replace most generated names by registered ones, except in deletions."""
    given = case.path_parameters or {}
    for name, known in KNOWN.items():
        value = given.get(name)
        if case.method != "DELETE" and isinstance(value, str) and NAME.fullmatch(value) and len(value) % 5:
            given[name] = known
    # A long poll would only slow down the test.
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0


def probe(operation: Any, mode: GenerationMode) -> None:
    """Call one operation with valid or with invalid input."""

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        aim(case)
        case.call_and_validate(checks=CHECKS)

    call()


def probe_all(document: Any) -> None:
    """Probe every operation with valid and invalid input, and report all failures."""
    failures = []
    for result in document.get_all_operations():
        operation = result.ok()
        for mode in GenerationMode:
            try:
                probe(operation, mode)
            except Unsatisfiable:
                # An operation without input has no invalid input.
                continue
            except (AssertionError, FailureGroup, ExceptionGroup) as error:
                failures.append(f"{operation.label} ({mode.value}): {error}")
    assert not failures, "\n\n".join(failures)


def test_every_response_matches_the_openapi_document(server: ServerProcess) -> None:
    """There is no 5xx and no undocumented status, type or member."""
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")

    probe_all(document.exclude(operation_id="createKey"))


def test_key_creation_matches_the_openapi_document(tmp_path: Path) -> None:
    """After the first key every call needs one, so this test uses its own gateway."""
    server = ServerProcess(tmp_path, MQGATE_SQLITE_SYNCHRONOUS="normal").start()
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")

    probe_all(document.include(operation_id="createKey"))

    server.stop()


def test_fixed_words_and_instants_are_in_the_openapi_document(server: ServerProcess) -> None:
    """Generated clients have types for them, not texts."""
    with httpx.Client(base_url=server.url) as api:
        schemas = api.get("/openapi.json").json()["components"]["schemas"]

    members = {name: schema.get("properties", {}) for name, schema in schemas.items()}
    assert members["OutcomeOut"]["outcome"]["enum"][:3] == ["applied", "duplicate", "late_applied"]
    assert "rate_limited" in members["ReceiveOut"]["state"]["enum"]
    assert {"unknown_field", "overloaded", "lease_lost"} <= set(members["Problem"]["code"]["enum"])
    assert members["MessageOut"]["storedAt"] == {"type": "string", "format": "date-time"}


def test_a_streamed_response_is_in_the_openapi_document(server: ServerProcess) -> None:
    """Generated clients learn about Arrow, columns and 406."""
    with httpx.Client(base_url=server.url) as api:
        document = api.get("/openapi.json").json()
        described = document["paths"]["/v1/topics/{topic}/queues/{queue}/messages"]["get"]
        arrow = api.get("/v1/topics/orders/queues/local:0/messages", headers={"Accept": ARROW})

    assert set(described["responses"]["200"]["content"]) == {"application/json", ARROW}
    assert described["responses"]["200"]["content"][ARROW]["schema"] == {"type": "string", "format": "binary"}
    assert "application/problem+json" in described["responses"]["406"]["content"]
    assert {parameter["name"] for parameter in described["parameters"] if parameter["in"] == "query"} == {
        "offset",
        "max",
        "columns",
    }
    assert (arrow.status_code, arrow.headers["content-type"]) == (200, ARROW)
    assert arrow.headers["transfer-encoding"] == "chunked"


def test_undocumented_methods_are_405_with_allow(server: ServerProcess) -> None:
    """This holds for every path, and the response is a problem document."""
    with httpx.Client(base_url=server.url) as api:
        for path, methods in api.get("/openapi.json").json()["paths"].items():
            address = re.sub(r"\{(\w+)\}", lambda found: KNOWN.get(found[1], "x"), path)
            for method in {"GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE"} - {
                method.upper() for method in methods
            }:
                response = api.request(method, address)

                assert response.status_code == 405, (method, address)
                assert response.headers["content-type"] == "application/problem+json"
                assert {method.strip().lower() for method in response.headers["allow"].split(",")} == set(methods)
