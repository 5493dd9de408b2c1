"""Tag filters: messages that do not match are settled for the group and never delivered."""

import httpx
import pytest
from message_calls import (
    ack,
    bodies,
    counted_steps,
    counts,
    lag,
    publish,
    put,
    shop,
    take,
)

from mqgate import bootstrap


async def test_a_message_that_does_not_match_is_settled(api: httpx.AsyncClient) -> None:
    """It is not delivered and adds no lag, committed moves past it, and other groups receive it."""
    await shop(api, filter={"tags": ["red", "blue"]})
    await put(api, "groups/everybody", topic="orders")
    await publish(api, "a", tag="green")
    await publish(api, "b", tag="blue")
    await publish(api, "c")
    await publish(api, "d", tag="red")

    messages = await take(api)
    await ack(api, *messages)

    assert bodies(messages) == ["b", "d"]
    assert await counts(api) == (0, 0, 0)
    assert (await lag(api))["queues"][0]["committed"] == 4
    assert len(await take(api, "everybody")) == 4


async def test_one_receive_finds_the_match_behind_many_others(api: httpx.AsyncClient) -> None:
    """However many messages do not match, they never end a receive."""
    await shop(api, queues=2, filter={"tags": ["red"]})
    await publish(api, *map(str, range(500)), tag="green")
    await publish(api, "match", tag="red")

    assert bodies(await take(api, max=10)) == ["match"]


@pytest.mark.parametrize("wish", [{}, {"attemptId": "a1"}])
async def test_a_rare_tag_is_found_in_few_steps(
    api: httpx.AsyncClient, gateway: bootstrap.Gateway, monkeypatch: pytest.MonkeyPatch, wish: dict[str, str]
) -> None:
    """One message per step would take seconds. Matches beyond the requested number stay ready, in order."""
    await shop(api, filter={"tags": ["red"]})
    await publish(api, *map(str, range(900)), tag="green")
    await publish(api, *"abc", tag="red")
    steps = counted_steps(gateway, monkeypatch)

    first = await take(api, max=1, **wish)

    assert bodies(first) == ["a"]
    assert len(steps) < 10
    assert not wish or await take(api, max=1, **wish) == first
    assert await counts(api) == (2, 1, 0)
    assert [bodies(await take(api, max=1)) for _ in range(3)] == [["b"], ["c"], []]
