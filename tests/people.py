"""People, teams and keys of a gateway, for tests of permissions."""

from typing import Any

import httpx

PASSWORD = "correct horse battery"
Headers = dict[str, str]


class People:
    """Creates credentials as an admin, and remembers the headers that authenticate each of them."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self.api = api
        self.headers: dict[str, Headers] = {}

    async def admin_key(self) -> Headers:
        self.headers["admin"] = bearer((await self.api.post("/v1/keys", json={"role": "admin"})).json()["key"])
        return self.headers["admin"]

    async def call(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.api.request(method, path, headers={**self.headers[who], **more.pop("headers", {})}, **more)

    async def put(self, path: str, **body: Any) -> None:
        response = await self.call("admin", "PUT", f"/v1/{path}", json=body)
        assert response.is_success, response.text

    async def add_key(self, name: str, **grant: Any) -> None:
        response = await self.call("admin", "POST", "/v1/keys", json=grant)
        assert response.status_code == 201, response.text
        self.headers[name] = bearer(response.json()["key"])

    async def add_person(self, name: str, role: str, *teams: str) -> None:
        await self.put(f"accounts/{name}", role=role, teams=list(teams), password=PASSWORD)
        self.headers[name] = bearer((await sign_in(self.api, name)).json()["token"])


def bearer(token: str) -> Headers:
    return {"authorization": f"Bearer {token}"}


async def sign_in(api: httpx.AsyncClient, name: str, password: str = PASSWORD, **headers: str) -> httpx.Response:
    response = await api.post("/v1/sessions", json={"account": name, "password": password}, headers=headers)
    # Tests decide themselves which requests carry a cookie.
    api.cookies.clear()
    return response
