"""`[http] cors_origins` lets the pages of an origin use a gateway with a key, in a real Chromium."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.async_api import Page

from mqgate.testing.server_process import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PUBLISH = """async ([url, key]) => {
    try {
        const response = await fetch(`${url}/v1/topics/orders/messages`, {
            method: "POST", body: '{"body": "from a page"}',
            headers: {"content-type": "application/json", ...(key ? {authorization: `Bearer ${key}`} : {})},
        });
        return [response.status, (await response.json()).code ?? null, response.headers.has("x-request-id")];
    } catch (error) {
        return error.name;
    }
}"""


class Keyed(NamedTuple):
    url: str
    key: str

    def stored(self) -> int:
        """Return how many messages the topic has."""
        response = httpx.get(f"{self.url}/v1/topics/orders/queues", headers={"authorization": f"Bearer {self.key}"})
        return int(response.json()["items"][0]["max"])


@pytest.fixture
def keyed(tmp_path: Path, foreign_port: int) -> Iterator[Keyed]:
    """A gateway with an admin key that lists the origin http://localhost:<foreign port>."""
    server = ServerProcess(tmp_path, MQGATE_HTTP_CORS_ORIGINS=f"http://localhost:{foreign_port}").start()
    with httpx.Client(base_url=server.url) as api:
        api.put("/v1/topics/orders", json={"queues": 1}).raise_for_status()
        key = api.post("/v1/keys", json={"role": "admin"}).raise_for_status().json()["key"]
    yield Keyed(server.url, key)
    server.stop()


async def publish(page: Page, origin: str, gateway: Keyed, key: str) -> Any:
    await page.goto(origin)
    return await page.evaluate(PUBLISH, [gateway.url, key])


async def test_a_page_of_a_listed_origin_calls_with_its_key(page: Page, keyed: Keyed, foreign_port: int) -> None:
    """This is how a web application uses the gateway: preflight, Authorization, and a response that it can read."""
    called = await publish(page, f"http://localhost:{foreign_port}/", keyed, keyed.key)

    assert called == [201, None, True]
    assert keyed.stored() == 1


async def test_a_page_of_a_listed_origin_reads_why_it_was_refused(page: Page, keyed: Keyed, foreign_port: int) -> None:
    """Without a key the page gets the problem document. The browser would show an unreadable error otherwise."""
    called = await publish(page, f"http://localhost:{foreign_port}/", keyed, "")

    assert called == [401, "unauthorized", True]
    assert keyed.stored() == 0


async def test_a_page_of_another_origin_cannot_use_a_key_that_it_knows(
    page: Page, keyed: Keyed, foreign_port: int
) -> None:
    """The preflight is refused, so the browser does not send the call with its Authorization header."""
    called = await publish(page, f"http://127.0.0.1:{foreign_port}/", keyed, keyed.key)

    assert called == "TypeError"
    assert keyed.stored() == 0
