"""Schemathesis over the OpenAPI document: whatever it allows or forbids, the answers are those it promises."""

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
    """A gateway where the names that the tests use are registered and have messages."""
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
    """Most generated names exist nowhere: aim at what is registered, except where it would be deleted."""
    given = case.path_parameters or {}
    for name, known in KNOWN.items():
        value = given.get(name)
        if case.method != "DELETE" and isinstance(value, str) and NAME.fullmatch(value) and len(value) % 5:
            given[name] = known
    # A long poll would wait for nothing.
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0


def probe(operation: Any, mode: GenerationMode) -> None:
    """Call one operation with what its description allows, or with what it forbids."""

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        aim(case)
        case.call_and_validate(checks=CHECKS)

    call()


def probe_all(document: Any) -> None:
    """Every operation both ways; all failures are told, not only the first."""
    failures = []
    for result in document.get_all_operations():
        operation = result.ok()
        for mode in GenerationMode:
            try:
                probe(operation, mode)
            except Unsatisfiable:
                # Nothing can be forbidden where nothing is asked for.
                continue
            except (AssertionError, FailureGroup, ExceptionGroup) as error:
                failures.append(f"{operation.label} ({mode.value}): {error}")
    assert not failures, "\n\n".join(failures)


def test_no_call_is_answered_otherwise_than_documented(server: ServerProcess) -> None:
    """No 5xx, no undocumented status or type, every answer of its described shape."""
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")

    probe_all(document.exclude(operation_id="createKey"))


def test_making_keys_is_answered_as_documented(tmp_path: Path) -> None:
    """Also after the first one, when every call without a key is refused: on a gateway of its own."""
    server = ServerProcess(tmp_path, MQGATE_SQLITE_SYNCHRONOUS="normal").start()
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")

    probe_all(document.include(operation_id="createKey"))

    server.stop()


def test_a_streamed_answer_is_described_beside_the_other(server: ServerProcess) -> None:
    """Who generates a client from the document learns of Arrow, of the columns, and of 406."""
    with httpx.Client(base_url=server.url) as api:
        document = api.get("/openapi.json").json()
        described = document["paths"]["/v1/topics/{topic}/queues/{queue}/messages"]["get"]
        arrow = api.get("/v1/topics/orders/queues/local:0/messages", headers={"Accept": ARROW})

    assert set(described["responses"]["200"]["content"]) == {"application/json", ARROW}
    assert described["responses"]["200"]["content"][ARROW]["schema"] == {"type": "string", "format": "binary"}
    assert "application/problem+json" in described["responses"]["406"]["content"]
    assert {each["name"] for each in described["parameters"] if each["in"] == "query"} == {"offset", "max", "columns"}
    assert (arrow.status_code, arrow.headers["content-type"]) == (200, ARROW)
    assert arrow.headers["transfer-encoding"] == "chunked"


def test_methods_that_are_not_described_are_405_with_allow(server: ServerProcess) -> None:
    """On every address: HTTP's own answer, in our shape."""
    with httpx.Client(base_url=server.url) as api:
        for path, methods in api.get("/openapi.json").json()["paths"].items():
            address = re.sub(r"\{(\w+)\}", lambda found: KNOWN.get(found[1], "x"), path)
            for method in {"GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE"} - {
                each.upper() for each in methods
            }:
                answer = api.request(method, address)

                assert answer.status_code == 405, (method, address)
                assert answer.headers["content-type"] == "application/problem+json"
                assert {each.strip().lower() for each in answer.headers["allow"].split(",")} == set(methods)
