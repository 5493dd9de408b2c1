"""The authorisation matrix: every route, called by nobody and by every kind of caller, for own and other entries."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import httpx
import pytest

from mqgate import bootstrap
from mqgate.control.access.permissions import ACCOUNT_ROLES, KEY_ROLES, KINDS, PERMISSIONS, Grant
from mqgate.http import app
from mqgate.http.exchange import Request, Response
from mqgate.http.middleware import Resource
from mqgate.http.operation import Operation
from people import People

OWN = {"topic": "orders", "producer": "shop", "group": "billing"}
OTHER = {"topic": "parcels", "producer": "depot", "group": "delivery"}
REST = {"id": "x", "key": "x", "queue": "local:0", "account": "ada", "team": "red", "rest": "x", "consumer": "x"}
REST |= {"rule": "backlog_count", "subject": "x", "silence": "x", "channel": "x"}


def operations_of(gateway: bootstrap.Gateway) -> Iterator[Operation]:
    for route in gateway.app.routes:
        resource = route.endpoint  # type: ignore[attr-defined]  # all routes are of one kind
        assert isinstance(resource, Resource)
        yield from {id(operation): operation for operation in resource._operations.values()}.values()


def is_allowed(operation: Operation, kind: str, *, is_own: bool) -> bool:
    grant = PERMISSIONS[operation.name].get(kind)
    if grant is not Grant.OWN:
        return grant is not None
    # A producer's topic, and entries that are not in the path, are checked by the use case.
    is_in_path = any("{" + name + "}" in operation.path for name in OWN)
    return is_own or kind == "producer" or not is_in_path


@pytest.fixture
async def people(api: httpx.AsyncClient) -> People:
    """Return callers of every kind. Team red owns one entry of each sort, team blue the others."""
    people = People(api)
    await people.admin_key()
    for team, entries in (("red", OWN), ("blue", OTHER)):
        topic = entries["topic"]
        await people.put(f"teams/{team}")
        await people.put(f"topics/{topic}", team=team)
        await people.put(f"producers/{entries['producer']}", topic=topic, team=team)
        await people.put(f"groups/{entries['group']}", topic=topic, team=team)
    for role in ACCOUNT_ROLES:
        await people.add_person(f"{role}-person", role, "red")
    for role in KEY_ROLES:
        await people.add_key(f"{role}-key", role=role)
    await people.add_key("producer-key", producer=OWN["producer"])
    await people.add_key("group-key", group=OWN["group"])
    return people


@pytest.fixture
async def checked(gateway: bootstrap.Gateway) -> httpx.AsyncClient:
    """Return a client of the same routes whose handlers do nothing: only the checks before them are tested."""

    async def done(_: Request) -> Response:
        return Response(204)

    middleware = next(iter(gateway.app.routes)).endpoint._middleware  # type: ignore[attr-defined]
    operations = [
        replace(operation, handler=done, query=None, ignores_query=True) for operation in operations_of(gateway)
    ]
    transport = httpx.ASGITransport(app=app.build(middleware, operations), client=("127.0.0.1", 5000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_every_route_admits_exactly_the_callers_of_the_table(
    gateway: bootstrap.Gateway, people: People, checked: httpx.AsyncClient
) -> None:
    """The table is the only place that decides; a route that forgets the check would let everybody in."""
    callers = [name for name in people.headers if name != "admin"]
    wrong = []
    async with checked:
        for operation in operations_of(gateway):
            if operation.is_public or operation.is_anonymous:
                continue
            method = operation.method.split("|")[0]
            for entries, is_own in ((OWN, True), (OTHER, False)):
                path = operation.path.format_map({**REST, **entries})
                if (await checked.request(method, path)).status_code != 401:
                    wrong.append((operation.name, "nobody"))
                for caller in callers:
                    response = await checked.request(method, path, headers=people.headers[caller])
                    expected = 204 if is_allowed(operation, caller.split("-")[0], is_own=is_own) else 403
                    if response.status_code != expected:
                        wrong.append((operation.name, caller, is_own, response.text))

    assert wrong == []


async def test_every_route_has_a_row_and_every_row_a_route(gateway: bootstrap.Gateway) -> None:
    """A row without a route is a typing error, which leaves the route that was meant without its row."""
    names = {
        operation.name for operation in operations_of(gateway) if not operation.is_public and not operation.is_anonymous
    }

    assert names == PERMISSIONS.keys()


async def test_only_these_routes_need_no_credentials(gateway: bootstrap.Gateway) -> None:
    """Whoever adds one has to add it here."""
    public = {operation.name for operation in operations_of(gateway) if operation.is_public}
    by_network = {operation.name for operation in operations_of(gateway) if operation.is_anonymous}

    assert public == {"livez", "readyz", "signIn"}
    assert all(name.startswith("mq") for name in by_network)


def granted(kind: str) -> Mapping[str, Grant]:
    return {operation: grants[kind] for operation, grants in PERMISSIONS.items() if kind in grants}


ANYBODY = {"info", "openapi", "docs", "me", "listSessions", "signOut", "signOutEverywhere", "changePassword"}
BODIES = {"getMessage", "findMessages", "readQueue", "getDeadLetter", "getScheduled", "receive"}


def test_the_table_keeps_the_promises_of_the_documentation() -> None:
    """The matrix follows the table, so the table itself is compared with what is promised."""
    assert granted("metrics").keys() == ANYBODY | {"metrics"}
    assert granted("admin").keys() == PERMISSIONS.keys()
    assert set(granted("admin").values()) == {Grant.ALL}
    assert not granted("viewer").keys() & BODIES
    assert granted("reader").keys() - granted("viewer").keys() == BODIES - {"receive"}
    assert granted("reader").keys() < granted("operator").keys()
    assert not granted("member").keys() & {"seek", "pause", "purgeDeadLetters", "createKey", "putTopic", "publish"}
    for kind in set(KINDS) - {"admin"}:
        assert not granted(kind).keys() & {"createKey", "putAccount", "deleteAccount", "deleteTopic", "putTeam"}, kind


async def test_an_operator_changes_limits_only(people: People) -> None:
    """Whoever answers an incident slows a group down, but does not change what it consumes."""
    for path, more in (("groups/billing", {"maxInFlight": 5}), ("producers/shop", {})):
        method = "PATCH" if path.startswith("groups") else "PUT"
        limited = await people.call("operator-person", method, f"/v1/{path}", json={"rateLimit": 10, **more})
        other = await people.call("operator-person", method, f"/v1/{path}", json={"rateLimit": 1, "team": "blue"})

        assert limited.status_code == 200, limited.text
        assert (other.status_code, other.json()["code"]) == (403, "forbidden")
    created = await people.call("operator-person", "PUT", "/v1/producers/new", json={"rateLimit": 1})
    assert (created.status_code, created.json()["code"]) == (404, "producer_not_found")


async def test_a_producer_changes_its_own_scheduled_messages_only(people: People) -> None:
    """Those of others look as if they did not exist; so do those without a producer, such as from release 0.1.0."""
    await people.add_key("depot-key", producer="depot")
    ids = {}
    for who, topic in (("producer-key", "orders"), ("depot-key", "parcels"), ("admin", "orders")):
        body = {"body": "x", "delay": "1h"}
        response = await people.call(who, "POST", f"/v1/topics/{topic}/messages", json=body)
        ids[who] = response.json()["id"]

    listed = await people.call("producer-key", "GET", "/v1/scheduled")
    assert [item["id"] for item in listed.json()["items"]] == [ids["producer-key"]]
    for who in ("producer-key", "member-person"):
        for other in ("depot-key", "admin"):
            for method, body in (("GET", None), ("PATCH", {"delay": "2h"}), ("DELETE", None)):
                response = await people.call(who, method, f"/v1/scheduled/{ids[other]}", json=body)
                assert (response.status_code, response.json()["code"]) == (404, "scheduled_not_found")
    own = f"/v1/scheduled/{ids['producer-key']}"
    assert (await people.call("producer-key", "PATCH", own, json={"delay": "2h"})).status_code == 200
    assert (await people.call("member-person", "DELETE", own)).status_code == 200
    assert (await people.call("admin", "DELETE", f"/v1/scheduled/{ids['admin']}")).status_code == 200
