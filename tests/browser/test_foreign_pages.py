"""A web page of another origin has no effect on an open gateway, and reads nothing from it, in a real Chromium."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from foreign_server import ATTACKS
from open_gateway import OpenGateway
from playwright.async_api import Page, Request

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CALLS = [
    {"method": method, "path": path, "body": body}
    for method, path, body in (
        ("POST", "/v1/topics/orders/messages", '{"body": "="}'),
        ("POST", "/v1/groups/workers/receive", '{"attemptId": "="}'),
        ("POST", "/v1/groups/workers/seek", '{"to": "earliest", "reason": "="}'),
        ("POST", "/v1/groups/workers/dead-letters/purge", '{"all": true}'),
        ("POST", "/v1/groups/workers/pause", '{"reason": "="}'),
        ("PUT", "/v1/topics/foreign", "{}"),
        ("DELETE", "/v1/groups/locked", ""),
        ("GET", "/v1/topics/orders/queues/local:0/messages", ""),
        ("GET", "/v1/groups/workers/lag", ""),
        ("GET", "/openapi.json", ""),
        ("GET", "/metrics", ""),
        ("POST", "/mq/produce?producer=shop&message=foreign", "message=foreign"),
        ("GET", "/mq/message?topic=orders&consumer=locked", ""),
        ("POST", "/mq/message?topic=orders&consumer=locked", ""),
        ("GET", "/mq/clustering/queue/offset?consumer=locked", ""),
        # Last: once there is a key, every call without one is refused for that reason.
        ("POST", "/v1/keys", '{"role": "admin"}'),
    )
]
# One for each POST: a page does not learn when a beacon is answered.
BEACONS = sum(call["method"] == "POST" for call in CALLS)
# How many requests of each call reach the gateway at least. The browser itself keeps back those with a preflight.
MIN_TECHNIQUES = 3


class Foreign(NamedTuple):
    """Where the page comes from, and the name by which it reaches the gateway."""

    page: str
    target: str
    is_rebound: bool = False


ORIGINS: dict[str, Callable[[int, int], Foreign]] = {
    "other port": lambda gateway, port: Foreign(f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{gateway}"),
    "other site": lambda gateway, port: Foreign(f"http://localhost:{port}/", f"http://127.0.0.1:{gateway}"),
    # The page was loaded before its name was rebound to loopback. Then the gateway is of the same origin.
    "rebound": lambda gateway, _: Foreign(f"http://evil.test:{gateway}/", f"http://evil.test:{gateway}", True),
}


@pytest.fixture(params=ORIGINS)
def foreign(request: pytest.FixtureRequest, gateway: OpenGateway, foreign_port: int) -> Foreign:
    return ORIGINS[request.param](gateway.port, foreign_port)


async def open_page(page: Page, foreign: Foreign) -> None:
    await page.goto(foreign.page)
    if foreign.is_rebound:
        # The gateway's refusal is a document of the rebound origin. Give it the script of the page that an attacker
        # would have loaded before. An intercepted response would not do: Chromium keeps it from loopback addresses.
        await page.add_script_tag(content=ATTACKS)


async def attack(page: Page, foreign: Foreign) -> dict[str, str | None]:
    """Run all attacks. Return what the page could read, by attack."""
    beacons: list[Request] = []
    are_all_sent = asyncio.Event()

    def record(request: Request) -> None:
        if request.resource_type == "ping":
            beacons.append(request)
        if len(beacons) == BEACONS:
            are_all_sent.set()

    page.on("requestfinished", record)
    page.on("requestfailed", record)
    options = {"canRedirect": not foreign.is_rebound}
    found = await page.evaluate("([t, c, o]) => attack(t, c, o)", [foreign.target, CALLS, options])
    await asyncio.wait_for(are_all_sent.wait(), 60)
    return dict(found)


def is_refusal(foreign: Foreign, text: str) -> bool:
    """Return whether a page of the same origin read, or loaded as a script, why it was refused."""
    return foreign.is_rebound and ("allowed_hosts" in text or text == "loaded")


async def test_a_foreign_page_changes_nothing_and_reads_nothing(
    page: Page, gateway: OpenGateway, foreign: Foreign
) -> None:
    """Any page that a user opens can send requests to loopback. The gateway has no key that would stop it."""
    before = gateway.state()
    await open_page(page, foreign)

    read = await attack(page, foreign)

    assert gateway.state() == before
    assert gateway.refused() >= MIN_TECHNIQUES * len(CALLS)
    assert {name: text for name, text in read.items() if text is not None and not is_refusal(foreign, text)} == {}


async def test_a_link_of_a_foreign_page_leads_to_the_documentation_only(
    page: Page, gateway: OpenGateway, foreign_port: int
) -> None:
    """A navigation needs no permission from CORS, and a GET of `/mq/message` leases messages."""
    before = gateway.state()
    shown = {}

    for path in ("/docs", "/v1/groups/workers/lag", "/mq/message?topic=orders&consumer=locked"):
        await page.goto(f"http://localhost:{foreign_port}/")
        async with page.expect_navigation():
            await page.evaluate("(url) => { location = url }", f"{gateway.url}{path}")
        shown[path] = await page.title() or await page.inner_text("body")

    documentation, *others = shown.values()
    assert documentation == "mqgate API"
    assert all("A page of another origin sent this request" in text for text in others), shown
    assert gateway.state() == before


async def test_the_gateways_own_page_may_call_it(page: Page, gateway: OpenGateway) -> None:
    """The protection is against other origins. A user who opens the documentation gets it, and its calls work."""
    response = await page.goto(f"{gateway.url}/docs")

    called: Any = await page.evaluate(
        """async () => {
            const document = await fetch("/openapi.json");
            const published = await fetch("/v1/topics/orders/messages", {
                method: "POST", headers: {"content-type": "application/json"}, body: '{"body": "own"}',
            });
            return [document.status, published.status];
        }"""
    )

    assert response is not None
    assert response.status == 200
    assert await page.title() == "mqgate API"
    assert called == [200, 201]
    assert gateway.state()["topics/orders/queues"]["items"][0]["max"] == 4
