"""People, keys and applications on both deployments, and on gateways that share their control data."""

import asyncio
from typing import Any

import httpx
import pytest
from message_calls import bodies, refused
from sides import Side

from eventually import until
from people import People, sign_in

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


async def approved(people: People, application: dict[str, Any]) -> str:
    """Apply as ada, approve as oli, and wait until it is applied."""
    submitted = await people.call("ada", "POST", "/v1/applications", json=application)
    assert submitted.status_code == 201, submitted.text
    path = f"/v1/applications/{submitted.json()['id']}"
    assert (await people.call("oli", "POST", f"{path}/approve")).status_code == 200

    async def is_finished() -> bool:
        return (await people.call("ada", "GET", path)).json()["state"] != "approved"

    await until(is_finished)
    shown = (await people.call("ada", "GET", path)).json()
    assert shown["state"] == "applied", shown
    return path


async def staffed(api: httpx.AsyncClient) -> People:
    """Return a gateway's people: ada is a member of team red, oli an operator."""
    people = People(api)
    await people.admin_key()
    await people.put("teams/red")
    await people.add_person("ada", "member", "red")
    await people.add_person("oli", "operator")
    return people


async def test_a_team_applies_publishes_and_consumes(live_api: httpx.AsyncClient) -> None:
    """The story of a new service: apply as a member, approve as an operator, take the keys, use them."""
    people = await staffed(live_api)
    await approved(people, {"kind": "topic", "topic": "orders", "settings": {"queues": 2}})
    await approved(people, {"kind": "producer", "producer": "shop", "settings": {"topic": "orders"}})
    await approved(people, {"kind": "group", "group": "billing", "settings": {"topic": "orders"}})
    for entry, name in (("producer", "shop"), ("group", "billing")):
        path = await approved(people, {"kind": "key", entry: name})
        key = (await people.call("ada", "POST", f"{path}/key")).json()["key"]
        people.headers[name] = {"authorization": f"Bearer {key}"}

    sent = await people.call("shop", "POST", "/v1/topics/orders/messages", json={"body": "first"})
    received = await people.call("billing", "POST", "/v1/groups/billing/receive", json={"wait": 20})
    receipt = received.json()["messages"][0]["receipt"]
    acked = await people.call("billing", "POST", "/v1/groups/billing/ack", json={"receipt": receipt})

    assert sent.status_code == 201, sent.text
    assert bodies(received.json()["messages"]) == ["first"]
    assert acked.json() == {"outcome": "applied"}
    refused(await people.call("billing", "POST", "/v1/topics/orders/messages", json={"body": "x"}), 403, "forbidden")
    assert (await people.call("ada", "GET", "/v1/groups/billing/lag")).json()["lag"] == 0


def through(side: Side, people: People) -> People:
    """Return the same people at another gateway."""
    other = People(side.api)
    other.headers = people.headers
    return other


@on_sqlite
async def test_what_one_gateway_approves_is_used_at_the_other(both: tuple[Side, Side]) -> None:
    """A load balancer sends every request to another gateway."""
    here = await staffed(both[0].api)
    there = through(both[1], here)

    await approved(here, {"kind": "topic", "topic": "orders"})
    await approved(there, {"kind": "producer", "producer": "shop", "settings": {"topic": "orders"}})
    path = await approved(here, {"kind": "key", "producer": "shop"})
    key = (await there.call("ada", "POST", f"{path}/key")).json()["key"]

    refused(await here.call("ada", "POST", f"{path}/key"), 409, "key_already_taken")
    for people in (here, there):
        people.headers["shop"] = {"authorization": f"Bearer {key}"}
        assert (await people.call("shop", "GET", "/v1/scheduled")).status_code == 200


@on_sqlite
async def test_a_deleted_key_and_a_disabled_account_stop_at_the_other_gateway(both: tuple[Side, Side]) -> None:
    """Whoever revokes access must not have to think of other gateways."""
    here = await staffed(both[0].api)
    there = through(both[1], here)
    await here.add_key("reader", role="reader")
    for who in ("reader", "ada"):
        assert (await there.call(who, "GET", "/v1/topics")).status_code == 200

    keys = (await here.call("admin", "GET", "/v1/keys")).json()["items"]
    (reader,) = (key["id"] for key in keys if key["role"] == "reader")
    await here.call("admin", "DELETE", f"/v1/keys/{reader}")
    await here.put("accounts/ada", disabled=True)

    for who in ("reader", "ada"):

        async def is_refused(who: str = who) -> bool:
            return (await there.call(who, "GET", "/v1/topics")).status_code == 401

        await until(is_refused)


@on_sqlite
async def test_a_session_is_valid_and_ended_at_all_gateways(both: tuple[Side, Side]) -> None:
    """Signing out at one gateway signs out at all, at once."""
    here = await staffed(both[0].api)
    there = through(both[1], here)
    assert (await there.call("ada", "GET", "/v1/me")).json()["account"] == "ada"

    assert (await there.call("ada", "DELETE", "/v1/sessions")).status_code == 204

    refused(await here.call("ada", "GET", "/v1/me"), 401, "unauthorized")


@on_sqlite
async def test_gateways_share_the_throttle_of_sign_ins(both: tuple[Side, Side]) -> None:
    """Otherwise each gateway would add free guesses."""
    await staffed(both[0].api)
    guesses = [sign_in(both[number % 2].api, "ada", f"wrong guess {number}") for number in range(10)]
    statuses = [response.status_code for response in await asyncio.gather(*guesses)]

    assert set(statuses) == {401, 429}


@on_sqlite
async def test_of_two_decisions_at_two_gateways_one_wins(both: tuple[Side, Side]) -> None:
    """The other operator is told, and nothing is applied twice."""
    here = await staffed(both[0].api)
    await here.add_person("eve", "operator")
    there = through(both[1], here)
    submitted = await here.call("ada", "POST", "/v1/applications", json={"kind": "topic", "topic": "orders"})
    path = f"/v1/applications/{submitted.json()['id']}"

    decisions = await asyncio.gather(
        here.call("oli", "POST", f"{path}/approve"),
        there.call("eve", "POST", f"{path}/decline", json={"reason": "no"}),
    )

    assert sorted(decision.status_code for decision in decisions) == [200, 409]
    loser = next(decision for decision in decisions if decision.status_code == 409)
    assert loser.json()["code"] == "application_changed"
