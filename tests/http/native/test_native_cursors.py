"""Invalid cursors are refused by every list, on both control engines."""

import httpx
import pytest
from native_calls import publish, put, receive, refused

HOSTILE = (
    "",
    " ",
    "-1",
    "1.5.9",
    "1.",
    ".1",
    "+1",
    "0x10",
    "1e3",
    "\u0661",
    "\x00",
    "a\nb",
    "../..",
    "' OR 1=1 --",
    "9" * 19,
    "9" * 500,
    "9" * 4_400,
    "x" * 5_000,
)
LISTS = {
    "/v1/topics": ("orders.", "a:b"),
    "/v1/producers": ("shop!",),
    "/v1/groups": ("workers/",),
    "/v1/keys": ("mqk_/",),
    "/v1/audit": ("1.1",),
    "/v1/groups/everybody/clients": (),
    "/v1/groups/workers/dead-letters": ("1.1",),
    "/v1/topics/orders/messages": ("1.1",),
    "/v1/topics/orders/queues": ("local", "local:", ":1", "local:x", "local:9999999999"),
    "/v1/scheduled": ("1", "999999999999999999.1", "1.9999999999999999999", "253402300800000000.1"),
    "/v1/scheduled?topic=orders": ("1", "999999999999999999.1"),
    "/v1/stats/traffic": ("1.1",),
    "/v1/stats/latency": (),
    "/v1/stats/redelivery": (),
    "/v1/stats/lag": (),
    "/v1/stats/reconciliation": (),
    "/v1/stats/findings": (),
    "/v1/stats/stuck": (),
}
# Any of these can be the name of a client.
CLIENTS = {"-1", " ", "1.5.9", "1.", ".1", "+1", "0x10", "1e3", "\u0661", "../..", "' OR 1=1 --", "9" * 19}
NAMES = {"-1", "0x10", "1e3", "9" * 19}
WELL_FORMED = {
    "/v1/groups/everybody/clients": CLIENTS,
    "/v1/topics": NAMES,
    "/v1/producers": NAMES,
    "/v1/groups": NAMES,
    "/v1/keys": NAMES,
}


@pytest.fixture
async def stocked(either: httpx.AsyncClient) -> httpx.AsyncClient:
    """Register two of every entry that is listed."""
    for name in ("orders", "returns"):
        await put(either, f"topics/{name}", queues=2)
        await put(either, f"producers/{name}", topic=name)
        await put(either, f"groups/{name}", topic="orders", mode="queue")
        await either.post("/v1/topics/orders/messages", json={"body": name, "delay": "1h"})
    await put(either, "groups/everybody", topic="orders", mode="broadcast")
    for client in ("ada", "ben"):
        await receive(either, "everybody", clientId=client)
    await publish(either, "c", "d")
    return either


@pytest.mark.parametrize("url", LISTS)
async def test_an_invalid_cursor_is_refused(stocked: httpx.AsyncClient, url: str) -> None:
    """Both engines return the same code, never a 500 or another page."""
    hostile = [cursor for cursor in (*HOSTILE, *LISTS[url]) if cursor not in WELL_FORMED.get(url, ())]

    for cursor in hostile:
        response = await stocked.get(httpx.URL(url).copy_merge_params({"cursor": cursor}))

        refused(response, 400, "invalid_value", field="cursor")


@pytest.mark.parametrize("url", LISTS)
async def test_every_list_is_read_to_its_end_by_its_cursors(stocked: httpx.AsyncClient, url: str) -> None:
    """The validation of cursors must accept those that lists return."""
    whole = (await stocked.get(url)).json()["items"]
    seen, query = [], {"limit": "1"}

    for _ in range(len(whole) + 1):
        response = await stocked.get(httpx.URL(url).copy_merge_params(query))
        assert response.status_code == 200, response.text
        seen += response.json()["items"]
        if response.json()["next"] is None:
            break
        query["cursor"] = response.json()["next"]

    assert seen == whole
