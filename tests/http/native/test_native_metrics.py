"""/metrics: callers cannot increase the number of series."""

import httpx
from native_calls import publish, receive, settle

ROUNDS = 12


async def series(api: httpx.AsyncClient) -> set[str]:
    """Return the names and labels of all series."""
    text = (await api.get("/metrics")).text
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


async def misuse(api: httpx.AsyncClient, number: int) -> None:
    """Send requests with new names in every part that a caller chooses."""
    word = f"made-up-{number}"
    headers = {"x-request-id": word, "user-agent": word, "mqgate-key": word, "mqgate-tag": word}
    await api.post(f"/v1/topics/{word}/messages", json={"body": "x"})
    await api.post("/v1/topics/orders/messages", content=b"x", headers={**headers, "idempotency-key": word})
    await api.post("/v1/topics/orders/messages", json={"body": "x", word: 1})
    await api.post(f"/v1/groups/{word}/receive", json={"clientId": word})
    lease = (await receive(api, max=1, clientId=word, attemptId=word))["lease"]
    await settle(api, "nack", lease["receipt"], reason=word)
    await settle(api, "ack", word)
    await settle(api, word, word)
    await api.get(f"/{word}/{word}")
    await api.get(f"/v1/stats/{word}")
    await api.get("/v1/topics", params={word: word})
    await api.request(word.upper(), "/v1/topics/orders")
    await api.request("OPTIONS", f"/v1/{word}", headers={"origin": f"https://{word}.example"})
    await api.get(f"/mq/{word}", params={"topic": word, "consumer": word, "clientId": word})
    await api.get("/mq/message", params={"topic": word, "consumer": word, "clientId": word})


async def test_callers_cannot_create_metric_series(shop: httpx.AsyncClient) -> None:
    """Every series uses memory, here and in Prometheus."""
    await publish(shop, "a")
    await misuse(shop, 0)
    # A scrape is counted when it has been answered.
    await series(shop)
    before = await series(shop)

    for number in range(1, ROUNDS):
        await misuse(shop, number)

    after = await series(shop)
    assert after == before
    assert not [line for line in after if "made-up" in line.lower()]
