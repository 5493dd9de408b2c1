"""Health checks, metrics, info, request ids and the docs page."""

import re
from typing import Any

import httpx
import pytest
from native_calls import publish, receive, settle


async def test_livez_and_readyz_return_ok(api: httpx.AsyncClient) -> None:
    """The response lists every part, so that an operator sees which one failed."""
    assert (await api.get("/livez")).json() == {"status": "ok"}
    ready = await api.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["status"] == "ok"
    assert set(ready.json()["parts"].values()) == {"ok"}
    assert {"store", "disk", "server"} <= set(ready.json()["parts"])


async def test_a_stopping_server_is_alive_but_not_ready(api: httpx.AsyncClient, gateway: Any) -> None:
    """A load balancer sends no new requests while running ones finish."""
    gateway.health.is_stopping = True

    ready = await api.get("/readyz")

    assert ready.status_code == 503
    assert ready.json()["parts"]["server"] == "stopping"
    assert ready.headers["retry-after"] == "1"
    assert (await api.get("/livez")).status_code == 200


async def test_info_shows_version_engine_and_limits(api: httpx.AsyncClient) -> None:
    """Clients read the limits before they start."""
    info = (await api.get("/v1/info")).json()

    assert (info["name"], info["engine"]) == ("mqgate", "sqlite")
    assert info["limits"]["batch"] == 1_000
    assert {"message", "queue", "broadcast"} <= set(info["capabilities"])


async def test_metrics_count_published_and_settled_messages(shop: httpx.AsyncClient) -> None:
    """The format is Prometheus text, and only registered names are labels."""
    await publish(shop, "a", "b")
    await settle(shop, "ack", (await receive(shop))["lease"]["receipt"])
    await shop.get("/v1/topics/unregistered-name")

    response = await shop.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain")
    assert 'mqgate_published_total{topic="orders"} 2.0' in response.text
    assert 'mqgate_delivered_total{group="workers"} 2.0' in response.text
    assert 'mqgate_settled_total{group="workers",outcome="applied",verb="ack"} 1.0' in response.text
    assert "unregistered-name" not in response.text


@pytest.mark.parametrize("given", ["abc", "4bf92f35-77b3/4da6:1+2=.x_".replace("_", "-"), "x" * 128])
async def test_a_valid_request_id_is_returned(api: httpx.AsyncClient, given: str) -> None:
    """One id appears in all logs, for responses and errors alike."""
    for path in ("/livez", "/v1/nothing", "/v1/topics/nothing"):
        assert (await api.get(path, headers={"x-request-id": given})).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "<script>", "a\tb", "ü"])
async def test_an_invalid_request_id_is_replaced(api: httpx.AsyncClient, given: str) -> None:
    """Arbitrary text must not get into the logs, and every response has an id."""
    headers = [(b"x-request-id", given.encode())]

    ids = [(await api.get("/livez", headers=headers)).headers["x-request-id"] for _ in range(2)]

    assert given not in ids
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"[0-9a-f]{16}", message_id) for message_id in ids)


async def test_the_docs_page_loads_no_external_resources(api: httpx.AsyncClient) -> None:
    """It works offline, and it lists every operation."""
    page = (await api.get("/docs")).text
    document = (await api.get("/openapi.json")).json()

    assert not re.findall(r"""(?:src|href|action)\s*=\s*['"]?(?:https?:)?//""", page, re.IGNORECASE)
    assert not re.findall(r"@import|url\(|<script|<link|<iframe|<img", page, re.IGNORECASE)
    for path in document["paths"]:
        assert path in page


async def test_the_openapi_document_is_complete(api: httpx.AsyncClient) -> None:
    """It is version 3.1, operation ids are unique, and every error is a problem document."""
    document = (await api.get("/openapi.json")).json()

    operations = [method for methods in document["paths"].values() for method in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert document["openapi"].startswith("3.1")
    assert len(ids) == len(set(ids))
    assert {"publish", "receive", "ack", "nack", "extend", "lag", "seek"} <= set(ids)
    for operation in operations:
        for status, response in operation["responses"].items():
            if int(status) >= 400 and operation["operationId"] != "readyz":
                assert set(response["content"]) == {"application/problem+json"}, (operation["operationId"], status)
