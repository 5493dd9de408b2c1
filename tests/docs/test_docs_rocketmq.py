"""What the pages about RocketMQ say is what it does: commands, answers, what lies on the brokers, taking over."""

import json
import re
import shlex
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import click
import httpx
import pytest
from doc_pages import ROOT, blocks

from mqgate import bootstrap
from mqgate.adapters.rocketmq.faults import translated
from mqgate.cli.main import cli
from mqgate.rocketmq import RocketMQClient
from mqgate.rocketmq.errors import NoResponse, NotSent, Refused, RemoteProtocolError, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.settings import MessageSettings, RocketMQSettings, Settings, SqliteSettings
from mqgate.stack import Stack

PAGE = ROOT / "docs" / "how-to" / "run-on-rocketmq.md"
REFERENCE = ROOT / "docs" / "reference" / "rocketmq.md"
GET_ALL_TOPICS, GET_ALL_GROUPS = 21, 201


def rows(page: Path, columns: int) -> list[list[str]]:
    """The rows of a page's tables that have so many columns, headings included."""
    lines = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


def _lines(page: Path) -> list[str]:
    lines = [line.removeprefix(".venv/bin/") for text in blocks(page, "") for line in text.splitlines()]
    return [line for line in lines if line.startswith("mqgate ")]


@pytest.mark.parametrize(
    "line", sorted({*_lines(PAGE), *_lines(PAGE.with_name("use-redis.md")), *_lines(ROOT / "README.md")})
)
def test_a_command_that_is_shown_is_understood(line: str) -> None:
    """An option that was renamed fails here, not in front of a newcomer."""
    context = click.Context(cli, info_name="mqgate", **cli.context_settings)
    command: click.Command = cli
    words = shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(context, words)  # type: ignore[assignment]

    assert command.make_context(command.name, words, parent=context).args == []


def _error(row: list[str]) -> RocketMQError:
    """What the client raises for the first two cells of a row."""
    if row[1]:
        return Refused(int(row[1]), "why", "broker:10911")
    by_words = {
        "no connection": NotSent("why"),
        "no response": NoResponse("why"),
        "bytes": RemoteProtocolError("why"),
        "any other": Refused(9_999, "why", "broker:10911"),
    }
    return next(error for words, error in by_words.items() if row[0].startswith(words))


def test_each_error_of_rocketmq_becomes_what_its_row_says() -> None:
    """Operators go from the number in a log to what callers saw, and back."""
    table = rows(REFERENCE, 5)[1:]

    assert len(table) == 15
    for row in table:
        # A server that is leaving is told by the client as if nothing had been sent.
        error = NotSent("why") if row[0] == "`GO_AWAY`" else _error(row)
        sent, asked = translated(error, "orders", is_send=True), translated(error, "orders")
        assert (f"`{sent.code}`", f"`{asked.code}`") == (row[2], row[3]), row
        assert {sent.retryable, asked.retryable} == {row[4].startswith("yes")}, row


def test_every_number_that_we_know_has_a_row() -> None:
    """With its name, once: among the errors or among the others."""
    told = [(row[0], row[1]) for row in [*rows(REFERENCE, 5), *rows(REFERENCE, 3)] if row[1].isdigit()]

    assert sorted(told) == sorted((f"`{code.name}`", str(code.value)) for code in ResponseCode)


def test_who_is_tried_on_another_broker_is_named() -> None:
    """The same list in the code, and no other."""
    from mqgate.adapters.rocketmq.faults import may_try_other_broker  # noqa: PLC0415 - beside its only use

    text = REFERENCE.read_text("utf-8")
    (sentence,) = re.findall(r"without a key\*\*(.*?)Never", text, re.DOTALL)
    named = set(re.findall(r"`([A-Z_]+)`", sentence)) - {ResponseCode.GO_AWAY.name}

    assert named == {code.name for code in ResponseCode if may_try_other_broker(Refused(code, "", ""))}
    assert may_try_other_broker(NotSent(""))
    assert not may_try_other_broker(NoResponse(""))


@pytest.fixture
def space() -> str:
    """A namespace of the test's own."""
    return uuid4().hex[:8]


@pytest.fixture
async def direct(rocketmq: Stack) -> AsyncIterator[RocketMQClient]:
    client = RocketMQClient([rocketmq.name_server])
    await client.routes.brokers()
    yield client
    await client.close()


@pytest.fixture
async def shop(rocketmq: Stack, space: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway on the cluster `one`."""
    settings = Settings(
        messages=MessageSettings(engine="rocketmq"),
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), synchronous="normal"),
        rocketmq=RocketMQSettings(
            name_servers=(rocketmq.name_server,), cluster="one", namespace=space, mirror_interval=timedelta(seconds=0.1)
        ),
    )
    async with bootstrap.gateway(settings) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
            yield api


async def _named(direct: RocketMQClient, code: int, table: str, space: str) -> set[str]:
    found = json.loads((await direct.brokers.call("local", code, {})).body)[table]
    return {name for name in found if f"{space}%" in name}


async def _dead_letter(shop: httpx.AsyncClient) -> str:
    """Let a message of the topic fail for the last time; its id."""
    published = (await shop.post("/v1/topics/orders/messages", json={"body": "x"})).json()
    received = (await shop.post("/v1/groups/billing/receive", json={"wait": 20})).json()
    (message,) = received["messages"]
    nacked = await shop.post("/v1/groups/billing/nack", json={"receipt": message["receipt"]})
    assert nacked.json()["outcome"] == "applied"
    return str(published["id"])


@pytest.mark.timeout(300)
async def test_what_lies_on_the_brokers_is_what_the_page_lists(
    shop: httpx.AsyncClient, direct: RocketMQClient, space: str
) -> None:
    """Who runs the cluster wants to know beforehand what will be there, and that a deletion takes it away."""
    listed = [(row[0], row[1].strip("`").replace("shop%", f"{space}%")) for row in rows(PAGE, 3) if "shop%" in row[1]]
    topics = {name for kind, name in listed if kind == "topic"}
    groups = {name for kind, name in listed if kind == "consumer group"}

    assert (await shop.put("/v1/topics/orders", json={"queues": 2})).is_success
    assert (await shop.put("/v1/groups/billing", json={"topic": "orders", "maxAttempts": 1})).is_success
    dead = await _dead_letter(shop)
    assert (await shop.post("/v1/groups/billing/dead-letters/redrive", json={"ids": [dead]})).is_success

    assert await _named(direct, GET_ALL_TOPICS, "topicConfigTable", space) == topics
    assert await _named(direct, GET_ALL_GROUPS, "subscriptionGroupTable", space) == groups
    assert await direct.admin.kv("ORDER_TOPIC_CONFIG", f"{space}%orders") == "local:2"

    assert (await shop.delete("/v1/groups/billing")).is_success
    assert (await shop.delete("/v1/topics/orders")).is_success
    assert await _named(direct, GET_ALL_TOPICS, "topicConfigTable", space) == {f"{space}%mqgate_events"}
    assert await _named(direct, GET_ALL_GROUPS, "subscriptionGroupTable", space) == {f"{space}%mqgate_reader"}
    assert await direct.admin.kv("ORDER_TOPIC_CONFIG", f"{space}%orders") is None


@pytest.mark.timeout(300)
async def test_a_topic_and_a_group_that_are_there_are_taken_over(
    shop: httpx.AsyncClient, direct: RocketMQClient, space: str
) -> None:
    """A group of years goes on behind its last message, neither at the beginning nor at the end."""
    topic, group = f"{space}%orders", f"{space}%billing"
    await direct.admin.put_topic("local", topic, 3)
    await direct.admin.put_group("local", group)
    for body in (b"old", b"older", b"new"):
        await direct.messages.send("local", topic, 1, body, {})
    await direct.offsets.commit("local", group, topic, 1, 2)

    assert (await shop.put("/v1/topics/orders", json={"queues": 2})).is_success
    assert (await shop.put("/v1/groups/billing", json={"topic": "orders", "start": "latest"})).is_success
    received = (await shop.post("/v1/groups/billing/receive", json={"wait": 20})).json()

    assert [(message["body"], message["queue"], message["offset"]) for message in received["messages"]] == [
        ("new", "local:1", 2)
    ]
    assert (await direct.admin.topic("local", topic)) == (3, 3, 6)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("member", [{"retention": "7d"}, {"retentionBytes": 1_000_000}])
async def test_retention_is_the_brokers_and_a_topics_own_is_refused(
    shop: httpx.AsyncClient, member: dict[str, object]
) -> None:
    """Taken and ignored, it would be a promise that nobody keeps."""
    refused = await shop.put("/v1/topics/orders", json=member)

    assert (refused.status_code, refused.json()["code"]) == (400, "unsupported_by_engine")
