"""Executors at brokers that ask for a user and show a certificate: what is shown to them, and whom they believe."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cluster import NO_TIMERS
from mqgate.rocketmq import RocketMQClient
from mqgate.rocketmq.remoting.command import Command
from mqgate.rocketmq.remoting.frame import FrameReader
from mqgate.spark.log import AccessDenied, LogError
from mqgate.spark.rocketmq_log import RocketMQLog
from mqgate.stack import Stack
from secured_stack import BROKER, ROOT_USER, Secured, make_authority, secured_stack

TOPIC = "read-me"
USER = {"access_key": "root", "secret_key": "root-secret"}
TOKEN = "temporary-token"


@pytest.fixture(scope="module")
def secured(rocketmq: Stack) -> Iterator[Secured]:
    """With a topic that holds one message; skipped where the other stack is."""
    assert rocketmq.name_server
    with secured_stack(**NO_TIMERS) as built:
        asyncio.run(_fill(built))
        yield built


async def _fill(secured: Secured) -> None:
    client = RocketMQClient([secured.name_server], credentials=ROOT_USER)
    await client.routes.brokers()
    await client.admin.put_topic(BROKER, TOPIC, 1)
    await client.messages.send(BROKER, TOPIC, 0, b"hello", {})
    await client.close()


def read(name_server: str, **options: Any) -> list[bytes]:
    """As the driver and a task do."""
    with closing(RocketMQLog(name_server, **options)) as log:
        low, high = log.ends(TOPIC)[f"{BROKER}:0"]
        batches = log.read(TOPIC, f"{BROKER}:0", low, high, ["body"])
        return [body for batch in batches for body in batch.column("body").to_pylist()]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_query_reads_over_tls_with_a_user(spark: SparkSession, secured: Secured) -> None:
    """`tls`, `tlsCa`, `accessKey`, `secretKey` and `securityToken`, on the driver and in the tasks."""
    options = {"transport": "rocketmq", "nameServers": secured.name_server, "tls": "true", "tlsCa": str(secured.ca)}
    user = {"accessKey": "root", "secretKey": "root-secret", "securityToken": TOKEN}

    rows = spark.read.format("mqgate").options(subscribe=TOPIC, **options, **user).load()

    assert [bytes(row.body) for row in rows.collect()] == [b"hello"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_certificate_that_is_not_believed_is_an_error_before_any_task(
    spark: SparkSession, secured: Secured, tmp_path: Path, wrong: str
) -> None:
    """Of an authority that we do not know, or for another name: the driver names the option and what to do."""
    make_authority(tmp_path / "other.pem")
    _, _, port = secured.name_server.partition(":")
    options = (
        {"nameServers": secured.name_server, "tlsCa": str(tmp_path / "other.pem")}
        if wrong == "authority"
        else {"nameServers": f"localhost:{port}", "tlsCa": str(secured.ca)}
    )
    reader = spark.read.format("mqgate").options(transport="rocketmq", tls="true", subscribe=TOPIC, **options)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)

    with pytest.raises(Exception, match=r"`tlsCa`.*authority that signed.*subjectAltName"):
        reader.load().collect()

    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs


def test_servers_without_tls_are_distinguished_from_stopped_ones(rocketmq: Stack) -> None:
    """They hang up on a greeting that they do not understand; the text names `tls`."""
    with pytest.raises(LogError, match="`tls`"):
        read(rocketmq.name_server, tls=True, retries=0)


def test_a_file_without_certificates_is_reported() -> None:
    """Before anybody is asked."""
    with pytest.raises(LogError, match=r"`tlsCa` .*nowhere.pem is not a file of certificates"):
        read("127.0.0.1:1", tls=True, tls_ca="/nowhere.pem")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_missing_or_wrong_user_is_refused(secured: Secured) -> None:
    """`accessKey` and `secretKey` of the source, where executors ask the brokers themselves."""
    assert read(secured.name_server, **USER) == [b"hello"]
    with pytest.raises(AccessDenied):
        read(secured.name_server, access_key="root", secret_key="wrong")
    with pytest.raises(AccessDenied):
        read(secured.name_server)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_token_is_in_every_request_and_the_broker_checks_it(secured: Secured) -> None:
    """RocketMQ keeps no list of tokens, but a signature covers it: what was changed on the way is refused."""
    async with _between(secured) as (name_server, said):
        assert await asyncio.to_thread(read, name_server, security_token=TOKEN, **USER) == [b"hello"]
    async with _between(secured, {TOKEN.encode(): TOKEN[::-1].encode()}) as (name_server, _):
        with pytest.raises(AccessDenied, match="signature"):
            await asyncio.to_thread(read, name_server, security_token=TOKEN, **USER)

    assert len(said) >= 2, "to look for the ends, and to pull"
    assert {command.fields.get("SecurityToken") for command in said} == {TOKEN}


@asynccontextmanager
async def _between(
    secured: Secured, changes: dict[bytes, bytes] | None = None
) -> AsyncIterator[tuple[str, list[Command]]]:
    """Yield relays to the name server and the broker: an address, and the setting for the broker."""
    said: list[Command] = []
    async with AsyncExitStack() as relays:
        broker = secured.stack.address(BROKER)
        stand_in = await relays.enter_async_context(_relay(broker, asked=changes or {}, said=said))
        # All ports have five digits: frames keep their length.
        answered = {broker.encode(): stand_in.encode()}
        yield await relays.enter_async_context(_relay(secured.name_server, answered=answered)), said


@asynccontextmanager
async def _relay(
    address: str,
    *,
    asked: dict[bytes, bytes] | None = None,
    answered: dict[bytes, bytes] | None = None,
    said: list[Command] | None = None,
) -> AsyncIterator[str]:
    """Passes everything on, with some words changed, and notes what was asked."""
    host, _, port = address.partition(":")
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        tasks.append(asyncio.create_task(_pass_on(reader, there_writer, asked or {}, said)))
        tasks.append(asyncio.create_task(_pass_on(there_reader, writer, answered or {}, None)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await asyncio.gather(*tasks)
    await server.wait_closed()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, changes: dict[bytes, bytes], said: list[Command] | None
) -> None:
    frames = FrameReader()
    while data := await reader.read(1 << 16):
        if said is not None:
            said += frames.feed(data)
        for before, after in changes.items():
            assert len(before) == len(after)
            data = data.replace(before, after)
        writer.write(data)
    writer.close()
