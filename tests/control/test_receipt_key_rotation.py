"""Receipt keys change while a gateway runs."""

import base64
from datetime import timedelta

import httpx

from mqgate import bootstrap
from mqgate.core.receipt import KeyRotationPolicy
from mqgate.testing.clock import ManualClock


async def received(api: httpx.AsyncClient) -> str:
    """A receipt of a message published now."""
    await api.post("/v1/topics/orders/messages", json={"body": "x"})
    answer = (await api.post("/v1/groups/workers/receive", json={})).json()
    return str(answer["messages"][0]["receipt"])


def key_of(receipt: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(receipt[:4])[:2])


async def test_a_gateway_that_runs_for_long_changes_its_key(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """Not only at a restart; what the old key signed is accepted until no lease of it can be held any more."""
    terms = KeyRotationPolicy()
    await api.put("/v1/topics/orders", json={"queues": 1})
    await api.put("/v1/groups/workers", json={"topic": "orders"})
    first = await received(api)

    clock.advance(terms.lifetime)
    await gateway.janitor.run_once()
    made = await received(api)
    clock.advance(terms.ahead)
    await gateway.janitor.run_once()
    settled = await received(api)
    answers = [await api.post("/v1/groups/workers/ack", json={"receipt": each}) for each in (made, settled)]
    clock.advance(terms.overlap + timedelta(minutes=1))
    await gateway.janitor.run_once()
    retired = await api.post("/v1/groups/workers/ack", json={"receipt": made})

    assert key_of(made) == key_of(first) != key_of(settled)
    assert "invalid_receipt" not in {answer.json().get("code") for answer in answers}
    assert retired.json()["code"] == "invalid_receipt"
