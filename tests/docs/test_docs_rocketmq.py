"""The pages about RocketMQ are correct: commands, errors, stored data, and the adoption of existing topics."""

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
    """Return the rows of tables with this many columns, headings included."""
    lines = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


def _lines(page: Path) -> list[str]:
    lines = [line.removeprefix(".venv/bin/") for text in blocks(page, "") for line in text.splitlines()]
    return [line for line in lines if line.startswith("mqgate ")]


@pytest.mark.parametrize(
    "line", sorted({*_lines(PAGE), *_lines(PAGE.with_name("use-redis.md")), *_lines(ROOT / "README.md")})
)
def test_a_command_on_the_page_is_accepted(line: str) -> None:
    """A renamed option must fail here and not for a newcomer."""
    context = click.Context(cli, info_name="mqgate", **cli.context_settings)
    command: click.Command = cli
    words = shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(context, words)  # type: ignore[assignment]

    assert command.make_context(command.name, words, parent=context).args == []


def _error(row: list[str]) -> RocketMQError:
    """Return the exception of the client for the first two cells of a row."""
    if row[1]:
        return Refused(int(row[1]), "why", "broker:10911")
    by_words = {
        "no connection": NotSent("why"),
        "no response": NoResponse("why"),
        "bytes": RemoteProtocolError("why"),
        "any other": Refused(9_999, "why", "broker:10911"),
    }
    return next(error for words, error in by_words.items() if row[0].startswith(words))


def test_each_rocketmq_error_becomes_the_error_of_its_row() -> None:
    """Operators go from the code in a log to the response of the callers, and back."""
    table = rows(REFERENCE, 5)[1:]

    assert len(table) == 15
    for row in table:
        # The client reports a server that is shutting down like a request that was not sent.
        error = NotSent("why") if row[0] == "`GO_AWAY`" else _error(row)
        sent, asked = translated(error, "orders", is_send=True), translated(error, "orders")
        assert (f"`{sent.code}`", f"`{asked.code}`") == (row[2], row[3]), row
        assert {sent.retryable, asked.retryable} == {row[4].startswith("yes")}, row


def test_every_known_response_code_has_one_row() -> None:
    """With its name, among the errors or among the others."""
    listed_codes = [(row[0], row[1]) for row in [*rows(REFERENCE, 5), *rows(REFERENCE, 3)] if row[1].isdigit()]

    assert sorted(listed_codes) == sorted((f"`{code.name}`", str(code.value)) for code in ResponseCode)


def test_the_errors_retried_on_another_broker_are_listed() -> None:
    """The list must be that of the code."""
    from mqgate.adapters.rocketmq.faults import may_try_other_broker  # noqa: PLC0415 - beside its only use

    text = REFERENCE.read_text("utf-8")
    (sentence,) = re.findall(r"without a key\*\*(.*?)Never", text, re.DOTALL)
    named = set(re.findall(r"`([A-Z_]+)`", sentence)) - {ResponseCode.GO_AWAY.name}

    assert named == {code.name for code in ResponseCode if may_try_other_broker(Refused(code, "", ""))}
    assert may_try_other_broker(NotSent(""))
    assert not may_try_other_broker(NoResponse(""))


@pytest.fixture
def space() -> str:
    """Return a namespace that belongs to the test."""
    return uuid4().hex[:8]


@pytest.fixture
async def direct(rocketmq: Stack) -> AsyncIterator[RocketMQClient]:
    client = RocketMQClient([rocketmq.name_server])
    await client.routes.brokers()
    yield client
    await client.close()


@pytest.fixture
async def shop(rocketmq: Stack, space: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway on cluster `one`."""
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
    """Exhaust a message of the topic and return its id."""
    published = (await shop.post("/v1/topics/orders/messages", json={"body": "x"})).json()
    received = (await shop.post("/v1/groups/billing/receive", json={"wait": 20})).json()
    (message,) = received["messages"]
    nacked = await shop.post("/v1/groups/billing/nack", json={"receipt": message["receipt"]})
    assert nacked.json()["outcome"] == "applied"
    return str(published["id"])


@pytest.mark.timeout(300)
async def test_the_page_lists_what_is_stored_on_the_brokers(
    shop: httpx.AsyncClient, direct: RocketMQClient, space: str
) -> None:
    """Operators of the cluster must know beforehand what is created, and what a deletion removes."""
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
async def test_an_existing_topic_and_group_are_adopted(
    shop: httpx.AsyncClient, direct: RocketMQClient, space: str
) -> None:
    """A group with history continues after its last message, not at the beginning or the end."""
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
async def test_a_retention_per_topic_is_refused(shop: httpx.AsyncClient, member: dict[str, object]) -> None:
    """Brokers decide the retention, and a setting without effect must not be accepted."""
    refused = await shop.put("/v1/topics/orders", json=member)

    assert (refused.status_code, refused.json()["code"]) == (400, "unsupported_by_engine")
