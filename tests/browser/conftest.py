"""A real Chromium, a web server of another origin, and an open gateway that has something to lose."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from chromium import HOW_TO_INSTALL, find
from foreign_server import serving
from open_gateway import OpenGateway
from playwright.async_api import Browser, Page, async_playwright


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests of a module. The name evil.test resolves to loopback, as after DNS rebinding."""
    path = find()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(HOW_TO_INSTALL, pytrace=False)
        pytest.skip(HOW_TO_INSTALL)
    arguments = ["--host-resolver-rules=MAP evil.test 127.0.0.1"]
    # Chromium's sandbox does not run as root. The pages are ours.
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments, timeout=120_000)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page in a browser profile of its own."""
    context = await browser.new_context()
    context.set_default_timeout(60_000)
    yield await context.new_page()
    await context.close()


@pytest.fixture(scope="module")
def foreign_port() -> Iterator[int]:
    with serving() as port:
        yield port


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenGateway]:
    gateway = OpenGateway(tmp_path_factory.mktemp("gateway"))
    yield gateway
    gateway.stop()
