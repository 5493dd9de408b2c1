"""Rotation of receipt keys in a running gateway."""

import base64
from datetime import timedelta

import httpx

from mqgate import bootstrap
from mqgate.core.receipt import KeyRotationPolicy
from mqgate.testing.clock import ManualClock


async def received(api: httpx.AsyncClient) -> str:
    """Publish a message, receive it and return its receipt."""
    await api.post("/v1/topics/orders/messages", json={"body": "x"})
    response = (await api.post("/v1/groups/workers/receive", json={})).json()
    return str(response["messages"][0]["receipt"])


def key_of(receipt: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(receipt[:4])[:2])


async def test_a_running_gateway_rotates_its_receipt_key(
    gateway: bootstrap.Gateway, api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """Receipts of the old key are accepted until none of their leases can be held."""
    policy = KeyRotationPolicy()
    await api.put("/v1/topics/orders", json={"queues": 1})
    await api.put("/v1/groups/workers", json={"topic": "orders"})
    first = await received(api)

    clock.advance(policy.lifetime)
    await gateway.janitor.run_once()
    made = await received(api)
    clock.advance(policy.ahead)
    await gateway.janitor.run_once()
    settled = await received(api)
    responses = [await api.post("/v1/groups/workers/ack", json={"receipt": receipt}) for receipt in (made, settled)]
    clock.advance(policy.overlap + timedelta(minutes=1))
    await gateway.janitor.run_once()
    retired = await api.post("/v1/groups/workers/ack", json={"receipt": made})

    assert key_of(made) == key_of(first) != key_of(settled)
    assert "invalid_receipt" not in {response.json().get("code") for response in responses}
    assert retired.json()["code"] == "invalid_receipt"
