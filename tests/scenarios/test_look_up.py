"""Message look-up over HTTP, page by page, on every engine."""

import httpx
import pytest
from message_calls import publish, refused, shop

PATH = "/v1/topics/orders/messages"


@pytest.mark.parametrize("asked", [{}, {"key": "red"}, {"from": 0, "to": 4_000_000_000_000}])
async def test_the_cursor_of_a_page_leads_to_the_next_page(api: httpx.AsyncClient, asked: dict[str, object]) -> None:
    """The pages contain every message once."""
    await shop(api, queues=2)
    sent = [message["id"] for number in range(7) for message in await publish(api, f"{number}", key="red")]
    await api.get(f"{PATH}/{sent[-1]}")

    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await api.get(PATH, params={**asked, "limit": 2, **cursor})
        assert answer.status_code == 200, answer.text
        found += [item["id"] for item in answer.json()["items"]]
        if not answer.json().get("next"):
            break
        cursor = {"cursor": answer.json()["next"]}

    assert sorted(found) == sorted(sent)


@pytest.mark.parametrize("cursor", ["1", "x", "1 local:0", "1 nowhere:0 0", "%00"])
async def test_an_invented_cursor_is_refused(api: httpx.AsyncClient, cursor: str) -> None:
    """The response is 400 if the cursor cannot be ours, and never 500."""
    await shop(api)

    answer = await api.get(PATH, params={"cursor": cursor})

    if answer.status_code != 200:
        refused(answer, 400, "invalid_value")


async def test_a_message_is_found_from_the_store_time_of_its_publish(api: httpx.AsyncClient) -> None:
    """A broker does not return the time that it stored, so the reported time must never be later."""
    await shop(api)
    (sent,) = await publish(api, "a")

    found = await api.get(PATH, params={"from": sent["storedAt"]})

    assert [item["id"] for item in found.json()["items"]] == [sent["id"]]


@pytest.mark.parametrize("mode", ["message", "queue"])
async def test_the_lowest_rate_is_respected(api: httpx.AsyncClient, mode: str) -> None:
    """One message in eleven days: the second one is refused, or not delivered."""
    await shop(api, mode=mode, rateLimit={"rate": 0.000001, "burst": 1}, visibility=1)
    slow = {"topic": "orders", "rateLimit": {"rate": 0.000001, "burst": 1_000_000_000}}
    assert (await api.put("/v1/producers/slow", json=slow)).status_code == 201
    published = [await api.post(PATH, params={"producer": "slow"}, json={"body": "a"}) for _ in range(2)]

    given = [(await api.post("/v1/groups/workers/receive", json={"max": 1})).json() for _ in range(2)]

    assert [response.status_code for response in published] == [201, 201]
    assert [len(response["messages"]) for response in given] == [1, 0]
