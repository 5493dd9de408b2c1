"""Accounts, teams and sessions: their life, and the attacks on them."""

import asyncio
from datetime import timedelta

import httpx
import pytest
from native_calls import refused

from mqgate import bootstrap
from mqgate.testing.clock import ManualClock
from people import PASSWORD, People, bearer, sign_in

SAME_ORIGIN = {"origin": "http://localhost"}


@pytest.fixture
async def people(api: httpx.AsyncClient) -> People:
    people = People(api)
    await people.admin_key()
    await people.put("teams/red", description="Payments")
    await people.add_person("ada", "member", "red")
    return people


async def with_cookie(api: httpx.AsyncClient, method: str, path: str, token: str, **more: object) -> httpx.Response:
    headers = {"cookie": f"other=1; mqgate_session={token}", **dict(more.pop("headers", {}))}  # type: ignore[call-overload]
    return await api.request(method, path, headers=headers, **more)  # type: ignore[arg-type]


async def test_the_first_account_closes_the_api_and_must_be_an_admin(api: httpx.AsyncClient) -> None:
    """Any other first account would shut out everybody who could create a second one."""
    body = {"role": "member", "password": PASSWORD}
    refused(await api.put("/v1/accounts/ada", json=body), 409, "first_key_not_admin")
    assert (await api.get("/v1/topics")).status_code == 200

    assert (await api.put("/v1/accounts/ada", json={**body, "role": "admin"})).status_code == 201

    refused(await api.get("/v1/topics"), 401, "unauthorized")
    token = (await sign_in(api, "ada")).json()["token"]
    assert (await api.get("/v1/topics", headers=bearer(token))).status_code == 200
    refused(await api.delete("/v1/accounts/nobody", headers=bearer(token)), 404, "account_not_found")


async def test_the_last_admin_stays(people: People) -> None:
    """An API with members only could not be administered."""
    await people.add_person("eve", "admin")
    keys = (await people.call("eve", "GET", "/v1/keys")).json()["items"]
    assert (await people.call("eve", "DELETE", f"/v1/keys/{keys[0]['id']}")).status_code == 204

    refused(await people.call("eve", "DELETE", "/v1/accounts/eve"), 409, "last_admin")
    refused(await people.call("eve", "PUT", "/v1/accounts/eve", json={"role": "member"}), 409, "last_admin")
    refused(await people.call("eve", "PUT", "/v1/accounts/eve", json={"disabled": True}), 409, "last_admin")


async def test_a_member_acts_for_the_own_team_only(people: People) -> None:
    """Teams own topics, producers and groups; the team is changed like any other setting."""
    await people.put("teams/blue")
    await people.put("topics/orders", team="red")
    await people.put("topics/parcels", team="blue")

    assert (await people.call("ada", "GET", "/v1/topics/orders/messages?key=k")).status_code == 200
    refused(await people.call("ada", "GET", "/v1/topics/parcels/messages?key=k"), 403, "forbidden")
    refused(await people.call("ada", "GET", "/v1/topics/missing/messages?key=k"), 403, "forbidden")
    await people.put("topics/orders", team=None)
    refused(await people.call("ada", "GET", "/v1/topics/orders/messages?key=k"), 403, "forbidden")


async def test_a_team_in_use_cannot_be_deleted(people: People) -> None:
    """Its entries would belong to nobody, or later to a new team of the same name."""
    await people.put("topics/orders", team="red")
    refused(await people.call("admin", "DELETE", "/v1/teams/red"), 409, "team_in_use")
    assert (await people.call("admin", "DELETE", "/v1/teams/red/members/ada")).status_code == 204
    await people.put("topics/orders", team=None)

    assert (await people.call("admin", "DELETE", "/v1/teams/red")).status_code == 204
    refused(await people.call("admin", "PUT", "/v1/topics/orders", json={"team": "red"}), 404, "team_not_found")


async def test_if_none_match_creates_only(people: People) -> None:
    """`create` must not change an entry that somebody else has created."""
    body = {"role": "admin", "password": PASSWORD}
    headers = {"if-none-match": "*"}
    refused(await people.call("admin", "PUT", "/v1/accounts/ada", json=body, headers=headers), 412, "already_exists")
    await people.put("topics/orders")
    await people.put("producers/shop", topic="orders")
    await people.put("groups/billing", topic="orders")
    for path in ("teams/red", "topics/orders", "producers/shop", "groups/billing"):
        refused(await people.call("admin", "PUT", f"/v1/{path}", json={}, headers=headers), 412, "already_exists")

    assert (await people.call("admin", "GET", "/v1/accounts/ada")).json()["role"] == "member"


async def test_every_sign_in_creates_a_new_session(people: People) -> None:
    """Session fixation: a token that the attacker planted must not become the victim's session."""
    api = people.api
    planted = (await sign_in(api, "ada")).json()["token"]
    response = await sign_in(api, "ada", cookie=f"mqgate_session={planted}")

    assert response.json()["token"] != planted
    refused(await with_cookie(api, "GET", "/v1/me", planted), 401, "unauthorized")
    forged = await sign_in(api, "ada", cookie="mqgate_session=mqs_chosen-by-the-attacker")
    assert "chosen" not in forged.text + str(forged.headers)


async def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(people: People) -> None:
    """Over https it is also not sent in clear text, and no sibling domain can set it."""
    plain = (await sign_in(people.api, "ada")).headers["set-cookie"]
    transport = people.api._transport
    async with httpx.AsyncClient(transport=transport, base_url="https://localhost") as tls:
        secure = (await sign_in(tls, "ada")).headers["set-cookie"]

    for cookie in (plain, secure):
        assert "; HttpOnly; SameSite=Lax" in cookie
        assert "; Path=/;" in cookie
        assert "Domain" not in cookie
    assert plain.startswith("mqgate_session=mqs_")
    assert "Secure" not in plain
    assert secure.startswith("__Host-mqgate_session=mqs_")
    assert secure.endswith("; Secure")


async def test_forged_and_expired_sessions_are_refused(people: People, clock: ManualClock) -> None:
    """A session ends without use and by age; a token is never derived from what is stored."""
    api = people.api
    token = (await sign_in(api, "ada")).json()["token"]
    for forged in (token[:-1], f"{token}x", token.replace("mqs_", "mqk_"), "mqs_", "mqs_' OR '1'='1", "x" * 5_000):
        refused(await with_cookie(api, "GET", "/v1/me", forged), 401, "unauthorized")
        refused(await api.get("/v1/me", headers=bearer(forged)), 401, "unauthorized")

    for _ in range(13):
        clock.advance(timedelta(hours=11))
        assert (await with_cookie(api, "GET", "/v1/me", token)).status_code == 200
    clock.advance(timedelta(hours=12))
    refused(await with_cookie(api, "GET", "/v1/me", token), 401, "unauthorized")

    aged = (await sign_in(api, "ada")).json()["token"]
    for _ in range(16):
        clock.advance(timedelta(hours=10))
        assert (await with_cookie(api, "GET", "/v1/me", aged)).status_code == 200
    clock.advance(timedelta(hours=8))
    refused(await with_cookie(api, "GET", "/v1/me", aged), 401, "unauthorized")


@pytest.mark.parametrize("how", ["disabled", "deleted and created again", "new password", "ended by an admin"])
async def test_an_admin_ends_all_sessions_of_an_account(people: People, how: str) -> None:
    """An account that was taken over must be stopped at once."""
    first, second = [(await sign_in(people.api, "ada")).json()["token"] for _ in range(2)]
    if how == "disabled":
        await people.put("accounts/ada", disabled=True)
    elif how == "new password":
        await people.put("accounts/ada", password="another battery staple")
    elif how == "ended by an admin":
        assert (await people.call("admin", "DELETE", "/v1/accounts/ada/sessions")).status_code == 204
    else:
        assert (await people.call("admin", "DELETE", "/v1/accounts/ada")).status_code == 204
        await people.put("accounts/ada", role="member", password=PASSWORD)

    for token in (first, second):
        refused(await people.api.get("/v1/me", headers=bearer(token)), 401, "unauthorized")
    if how in {"disabled", "new password"}:
        refused(await sign_in(people.api, "ada"), 401, "sign_in_failed")


async def test_a_person_signs_out_here_and_everywhere(people: People) -> None:
    """A lost laptop is signed out from another machine."""
    api = people.api
    here, there, third = [(await sign_in(api, "ada")).json()["token"] for _ in range(3)]
    sessions = (await api.get("/v1/sessions", headers=bearer(here))).json()["items"]
    assert [session["current"] for session in sessions].count(True) == 1
    assert here not in str(sessions)

    assert (await api.delete("/v1/sessions/current", headers=bearer(third))).status_code == 204
    refused(await api.get("/v1/me", headers=bearer(third)), 401, "unauthorized")
    assert (await api.get("/v1/me", headers=bearer(there))).status_code == 200
    response = await with_cookie(api, "DELETE", "/v1/sessions", here, headers=SAME_ORIGIN)
    assert response.status_code == 204
    assert "Max-Age=0" in response.headers["set-cookie"]
    refused(await api.get("/v1/me", headers=bearer(there)), 401, "unauthorized")


async def test_a_new_password_needs_the_current_one_and_ends_other_sessions(people: People) -> None:
    """Whoever finds an unlocked screen must not take the account over."""
    api = people.api
    here, there = [(await sign_in(api, "ada")).json()["token"] for _ in range(2)]
    wrong = {"current": "not the password", "new": "a new password"}
    refused(await api.put("/v1/me/password", json=wrong, headers=bearer(here)), 401, "sign_in_failed")
    short = {"current": PASSWORD, "new": "short"}
    refused(await api.put("/v1/me/password", json=short, headers=bearer(here)), 400, "invalid_value", field="new")

    body = {"current": PASSWORD, "new": "a new password"}
    assert (await api.put("/v1/me/password", json=body, headers=bearer(here))).status_code == 204

    assert (await api.get("/v1/me", headers=bearer(here))).status_code == 200
    refused(await api.get("/v1/me", headers=bearer(there)), 401, "unauthorized")
    refused(await sign_in(api, "ada"), 401, "sign_in_failed")
    assert (await sign_in(api, "ada", "a new password")).status_code == 201


@pytest.mark.parametrize("name", ["ada", "nobody"])
async def test_guessing_a_password_is_throttled(people: People, clock: ManualClock, name: str) -> None:
    """Also in parallel; and an unknown account looks like a known one."""
    guesses = await asyncio.gather(*(sign_in(people.api, name, f"wrong guess {n}") for n in range(12)))
    codes = [guess.json()["code"] for guess in guesses]

    assert codes.count("sign_in_failed") == 5
    assert codes.count("sign_in_throttled") == 7
    throttled = next(guess for guess in guesses if guess.status_code == 429)
    assert int(throttled.headers["retry-after"]) >= 1
    assert (await sign_in(people.api, name)).status_code == 429
    clock.advance(timedelta(minutes=1))
    assert (await sign_in(people.api, name)).status_code == (201 if name == "ada" else 401)


async def test_guessing_many_accounts_from_one_address_is_throttled(people: People, clock: ManualClock) -> None:
    """One password for many accounts; an own account in between does not reset the count."""
    codes = []
    for number in range(22):
        codes.append((await sign_in(people.api, f"name-{number}", "password123")).status_code)
        if number == 10:
            assert (await sign_in(people.api, "ada")).status_code == 201

    assert codes == [401] * 20 + [429] * 2
    clock.advance(timedelta(minutes=15))
    assert (await sign_in(people.api, "ada")).status_code == 201


CROSS = [
    {},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "https://localhost"},
    {"origin": "http://localhost:81"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://localhost", "sec-fetch-site": "cross-site"},
]


@pytest.mark.parametrize("headers", CROSS)
async def test_a_page_of_another_origin_cannot_act_with_the_cookie(people: People, headers: dict[str, str]) -> None:
    """Cross-site request forgery, with every content type that needs no preflight."""
    await people.add_person("eve", "admin")
    token = (await sign_in(people.api, "eve")).json()["token"]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
        sent = {**headers, "content-type": kind}
        for method, path in (("POST", "/v1/keys"), ("PUT", "/v1/topics/t"), ("DELETE", "/v1/accounts/ada")):
            response = await with_cookie(people.api, method, path, token, headers=sent, content=b'{"role":"admin"}')
            refused(response, 403, "origin_not_allowed")


@pytest.mark.parametrize("headers", [SAME_ORIGIN, {"sec-fetch-site": "same-origin"}])
async def test_a_page_of_the_gateway_acts_with_the_cookie(people: People, headers: dict[str, str]) -> None:
    """The console's own requests work; a token in the header needs no Origin, because no browser adds it."""
    await people.add_person("eve", "admin")
    token = (await sign_in(people.api, "eve")).json()["token"]

    assert (await with_cookie(people.api, "PUT", "/v1/topics/t", token, headers=headers)).status_code == 201
    assert (await people.call("eve", "PUT", "/v1/topics/u")).status_code == 201


async def test_another_page_cannot_sign_its_visitor_in(people: People) -> None:
    """Otherwise the visitor would work in an account that the attacker reads."""
    refused(await sign_in(people.api, "ada", origin="http://evil.example"), 403, "origin_not_allowed")
    refused(await sign_in(people.api, "ada", **{"sec-fetch-site": "cross-site"}), 403, "origin_not_allowed")


async def test_a_plain_cookie_is_not_accepted_over_https(people: People) -> None:
    """A sibling domain or a plain-text connection could have planted it."""
    token = (await sign_in(people.api, "ada")).json()["token"]
    async with httpx.AsyncClient(transport=people.api._transport, base_url="https://localhost") as tls:
        plain = await with_cookie(tls, "GET", "/v1/me", token)
        prefixed = await tls.get("/v1/me", headers={"cookie": f"__Host-mqgate_session={token}"})

    assert (plain.status_code, prefixed.status_code) == (401, 200)


async def test_passwords_and_tokens_are_nowhere_to_be_read(people: People, gateway: bootstrap.Gateway) -> None:
    """Neither the API, nor the audit trail, nor the store contains them."""
    token = (await sign_in(people.api, "ada")).json()["token"]
    pages = [
        (await people.call("admin", "GET", path)).text for path in ("/v1/audit", "/v1/accounts", "/v1/accounts/ada")
    ]

    assert gateway.registry.snapshot.accounts["ada"].password_hash.startswith("$argon2id$")
    for text in (*pages, repr(gateway.registry.snapshot)):
        assert "argon2" not in text
        assert PASSWORD not in text
        assert token not in text


NASTY = ["'; DROP TABLE registry; --", '"><script>alert(1)</script>', "{{7*7}}", "\\u0000%00", "Robert\u202eadmin"]


@pytest.mark.parametrize("text", NASTY)
async def test_text_is_stored_and_returned_as_text(people: People, text: str) -> None:
    """Injection into SQL or pages: every text field is data, and responses are JSON that no browser renders."""
    await people.put("topics/orders", queues=1)
    await people.put("groups/billing", topic="orders")
    await people.put("teams/red", description=text)
    for method, path, body in (
        ("POST", "/v1/groups/billing/pause", {"reason": text}),
        ("POST", "/v1/groups/billing/seek", {"to": "latest", "reason": text}),
    ):
        assert (await people.call("admin", method, path, json=body)).status_code == 200
    await sign_in(people.api, text, text, **{"user-agent": text.encode("ascii", "ignore").decode()})
    for path in (f"/v1/accounts/{text}", f"/v1/teams/{text}", f"/v1/topics/{text}", f"/v1/keys/{text}"):
        assert (await people.call("admin", "GET", path)).status_code in {400, 404, 405}
    created = await people.call("admin", "POST", "/v1/keys", json={"role": "viewer", "name": text, "owner": text})
    assert created.status_code == (201 if text.isprintable() else 400)

    team = await people.call("admin", "GET", "/v1/teams/red")
    audit = await people.call("admin", "GET", "/v1/audit")
    assert team.json()["description"] == text
    assert [entry["reason"] for entry in audit.json()["items"] if entry["reason"]] == [text, text]
    assert {team.headers["content-type"], audit.headers["content-type"]} == {"application/json"}
    assert (await people.call("ada", "GET", "/v1/topics")).status_code == 200
