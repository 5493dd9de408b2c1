"""Reused names: a new topic, group or key starts without anything of a deleted one."""

import httpx
from message_calls import put

from mqgate.testing.clock import ManualClock

MESSAGES = "/v1/topics/orders/messages"


async def renew_topic(api: httpx.AsyncClient) -> None:
    assert (await api.delete("/v1/topics/orders")).status_code == 204
    await put(api, "topics/orders", queues=1)


async def test_an_idempotency_key_of_a_deleted_topic_is_forgotten(api: httpx.AsyncClient) -> None:
    """The result of the old topic would mean a lost message in the new one, because 2xx means stored."""
    await put(api, "topics/orders", queues=1)
    await api.post(MESSAGES, json={"body": "a", "idempotencyKey": "k"})
    await renew_topic(api)

    response = await api.post(MESSAGES, json={"body": "a", "idempotencyKey": "k"})

    assert response.status_code == 201, response.text
    assert len((await api.get(MESSAGES)).json()["items"]) == 1


async def test_deleting_a_topic_cancels_its_scheduled_messages(api: httpx.AsyncClient, clock: ManualClock) -> None:
    """They are not delivered, not even into a later topic of that name. The response reports the state."""
    await put(api, "topics/orders", queues=1)
    scheduled = (await api.post(MESSAGES, json={"body": "late", "delay": "1h"})).json()
    await renew_topic(api)
    clock.advance(7200)
    await put(api, "groups/workers", topic="orders")

    received = (await api.post("/v1/groups/workers/receive", json={"wait": 1})).json()

    assert received["messages"] == []
    assert (await api.get(f"/v1/scheduled/{scheduled['id']}")).json()["state"] == "cancelled"


async def test_deleting_a_group_deletes_its_api_keys(api: httpx.AsyncClient) -> None:
    """A key of the old group must not give access to a new one."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/workers", topic="orders")
    admin = {"Authorization": f"Bearer {(await api.post('/v1/keys', json={'role': 'admin'})).json()['key']}"}
    made = await api.post("/v1/keys", json={"group": "workers"}, headers=admin)
    old = {"Authorization": f"Bearer {made.json()['key']}"}
    await api.delete("/v1/groups/workers", headers=admin)
    await api.put("/v1/groups/workers", json={"topic": "orders"}, headers=admin)

    response = await api.get("/v1/groups/workers/lag", headers=old)

    assert response.status_code == 401
    assert (await api.get("/v1/keys", headers=admin)).json()["items"][0]["role"] == "admin"


async def test_the_last_admin_key_cannot_be_deleted_while_others_exist(api: httpx.AsyncClient) -> None:
    """Otherwise keys could never be created or deleted again."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/workers", topic="orders")
    made = (await api.post("/v1/keys", json={"role": "admin"})).json()
    admin = {"Authorization": f"Bearer {made['key']}"}
    other = (await api.post("/v1/keys", json={"group": "workers"}, headers=admin)).json()

    refused = await api.delete(f"/v1/keys/{made['id']}", headers=admin)
    await api.delete(f"/v1/keys/{other['id']}", headers=admin)
    last = await api.delete(f"/v1/keys/{made['id']}", headers=admin)

    assert (refused.status_code, refused.json()["code"]) == (409, "last_key")
    assert last.status_code == 204
