"""What is deleted is gone: a later thing of the same name begins with nothing of it."""

import httpx
from message_calls import put

from mqgate.testing.clock import ManualClock

MESSAGES = "/v1/topics/orders/messages"


async def renew_topic(api: httpx.AsyncClient) -> None:
    assert (await api.delete("/v1/topics/orders")).status_code == 204
    await put(api, "topics/orders", queues=1)


async def test_a_key_of_a_deleted_topic_stores_again_in_its_successor(api: httpx.AsyncClient) -> None:
    """A 2xx means stored: an answer remembered from the old topic would be a lost message in the new one."""
    await put(api, "topics/orders", queues=1)
    await api.post(MESSAGES, json={"body": "a", "idempotencyKey": "k"})
    await renew_topic(api)

    answer = await api.post(MESSAGES, json={"body": "a", "idempotencyKey": "k"})

    assert answer.status_code == 201, answer.text
    assert len((await api.get(MESSAGES)).json()["items"]) == 1


async def test_what_was_scheduled_for_a_deleted_topic_is_cancelled_with_it(
    api: httpx.AsyncClient, clock: ManualClock
) -> None:
    """Not delivered, and not into a later topic of that name; the answer says which of the two won."""
    await put(api, "topics/orders", queues=1)
    scheduled = (await api.post(MESSAGES, json={"body": "late", "delay": "1h"})).json()
    await renew_topic(api)
    clock.advance(7200)
    await put(api, "groups/workers", topic="orders")

    received = (await api.post("/v1/groups/workers/receive", json={"wait": 1})).json()

    assert received["messages"] == []
    assert (await api.get(f"/v1/scheduled/{scheduled['id']}")).json()["state"] == "cancelled"


async def test_a_key_goes_with_the_group_it_belongs_to(api: httpx.AsyncClient) -> None:
    """Whoever was let in to the old group was not let in to the new one."""
    await put(api, "topics/orders", queues=1)
    await put(api, "groups/workers", topic="orders")
    admin = {"Authorization": f"Bearer {(await api.post('/v1/keys', json={'role': 'admin'})).json()['key']}"}
    made = await api.post("/v1/keys", json={"group": "workers"}, headers=admin)
    old = {"Authorization": f"Bearer {made.json()['key']}"}
    await api.delete("/v1/groups/workers", headers=admin)
    await api.put("/v1/groups/workers", json={"topic": "orders"}, headers=admin)

    answer = await api.get("/v1/groups/workers/lag", headers=old)

    assert answer.status_code == 401
    assert (await api.get("/v1/keys", headers=admin)).json()["items"][0]["role"] == "admin"


async def test_the_last_admin_key_stays_while_others_depend_on_it(api: httpx.AsyncClient) -> None:
    """Else nobody could ever make or delete a key again."""
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
