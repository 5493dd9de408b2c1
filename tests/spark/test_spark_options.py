"""Options of the source: their meaning, and the errors for invalid ones."""

from datetime import timedelta
from typing import Any

import pytest

from mqgate.spark.options import OPTIONS, Bound, OptionInvalid, Selection, SourceOptions, parse, properties_kind

BASE = {"url": "http://127.0.0.1:1", "subscribe": "orders"}


def options(*, is_stream: bool = False, without: str = "", **given: str) -> SourceOptions:
    both = {name: value for name, value in (BASE | given).items() if name != without}
    return parse(both, is_stream=is_stream)


def test_two_options_are_sufficient() -> None:
    """A batch reads all messages, a stream reads new ones, and losses are errors."""
    batch, stream = options(), options(is_stream=True)

    assert (batch.starting.kind, batch.ending.kind) == ("earliest", "latest")
    assert stream.starting.kind == "latest"
    assert batch.is_loss_fatal
    assert batch.properties == "map"
    assert stream.max_offsets is None
    assert stream.max_delay == timedelta(minutes=15)
    assert batch.connection.urls == ("http://127.0.0.1:1",)


def test_option_names_ignore_case() -> None:
    """Spark passes them in lower case."""
    assert options(startingoffsets="latest", MAXPARTITIONS="3").max_partitions == 3


def test_several_gateways_can_be_named() -> None:
    """One that is down must not stop a query."""
    assert options(url="http://a:1, http://b:2").connection.urls == ("http://a:1", "http://b:2")


def test_topics_queues_and_patterns_can_be_selected() -> None:
    """These are the three ways of the Kafka source of Spark."""
    assert options(subscribe="a, b,a").selection == Selection(("a", "b"))
    assert options(without="subscribe", subscribePattern="or.*").selection == Selection(pattern="or.*")
    assigned = options(without="subscribe", assign='{"a": ["local:0", "local:2"]}').selection
    assert assigned.queues == {"a": ("local:0", "local:2")}


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "earliest"}, Bound("earliest")),
        ({"startingOffsets": "latest"}, Bound("latest")),
        ({"startingOffsets": "committed", "group": "g"}, Bound("committed")),
        ({"startingOffsets": '{"orders": {"local:0": -2, "local:1": 7}}'}, Bound("offsets", {"orders": {"local:0": -2, "local:1": 7}})),  # noqa: E501
        ({"startingTimestamp": "1700000000000"}, Bound("instant", instant_ms=1700000000000)),
        ({"startingTimestamp": "1970-01-01T00:00:01Z"}, Bound("instant", instant_ms=1000)),
        ({"startingOffsetsByTimestamp": '{"orders": {"local:0": 5}}'}, Bound("instants", {"orders": {"local:0": 5}})),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}, Bound("instant", None, 5, True)),
    ],
)  # fmt: skip
def test_a_read_can_start_by_word_offset_or_time(given: dict[str, str], bound: Bound) -> None:
    """Per queue or for all queues."""
    assert options(**given).starting == bound


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"endingOffsets": "latest"}, "latest"),
        ({"endingOffsets": '{"orders": {"local:0": -1}}'}, "offsets"),
        ({"endingTimestamp": "5"}, "instant"),
        ({"endingOffsetsByTimestamp": '{"orders": {"local:0": "1970-01-01T00:00:01Z"}}'}, "instants"),
    ],
)
def test_a_batch_can_end_by_word_offset_or_time(given: dict[str, str], kind: str) -> None:
    """An instant in the future means the end of the queue."""
    assert options(**given).ending.kind == kind
    assert options(**given).ending.is_latest_if_none


def test_every_other_option_is_parsed() -> None:
    """Each value has the documented type."""
    found = options(
        is_stream=True,
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="2",
        maxPartitions="4",
        maxRecordsPerPartition="100",
        failOnDataLoss="false",
        properties="json",
        undecodable="null",
        group="g",
        commitOffsets="true",
        timeout="1500ms",
        retries="0",
        key="secret",
    )

    assert (found.max_offsets, found.min_offsets, found.max_delay) == (1000, 10, timedelta(seconds=30))
    assert (found.min_partitions, found.max_partitions, found.max_rows) == (2, 4, 100)
    assert (found.is_loss_fatal, found.properties, found.is_undecodable_null) == (False, "json", True)
    assert (found.group, found.is_committing) == ("g", True)
    assert (found.connection.timeout, found.connection.retries, found.connection.key) == (1.5, 0, "secret")


def test_options_for_rocketmq_are_parsed() -> None:
    """Executors need them to connect to the brokers."""
    found = options(
        without="url", transport="rocketmq", nameServers="a:9876;b:9876", accessKey="me", secretKey="x", tls="true"
    )

    assert dict(found.connection.rocketmq) == {
        "name_servers": "a:9876;b:9876",
        "access_key": "me",
        "secret_key": "x",
        "tls": True,
    }


def test_secrets_are_not_shown() -> None:
    """Options are printed in logs and plans."""
    http = options(key="hush")
    direct = options(without="url", transport="rocketmq", nameServers="a:1", accessKey="me", secretKey="hush")

    assert "hush" not in repr(http)
    assert "hush" not in repr(direct)


DIRECT = {"transport": "rocketmq", "nameServers": "a:1"}
BAD: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({"startingOfsets": "latest"}, {}, "startingOfsets is unknown: did you mean startingOffsets"),
    ({"whatever": "x"}, {}, "option whatever is unknown: use one of"),
    (DIRECT | {"tlsCa": "ca.pem"}, {"without": "url"}, "tlsCa has no effect without tls"),
    (DIRECT | {"secretKey": "x"}, {"without": "url"}, "option accessKey is missing"),
    (DIRECT | {"securityToken": "x"}, {"without": "url"}, "option accessKey is missing"),
    ({}, {"without": "url"}, "option url is missing"),
    ({}, {"without": "subscribe"}, "subscribe, subscribePattern and assign"),
    ({"assign": '{"a": ["local:0"]}'}, {}, "subscribe and assign are mutually exclusive"),
    ({"subscribe": " , "}, {}, "option subscribe must name a topic"),
    ({"subscribePattern": "("}, {"without": "subscribe"}, "option subscribePattern is not a regular expression"),
    ({"assign": "[]"}, {"without": "subscribe"}, "option assign must have the form"),
    ({"assign": "{"}, {"without": "subscribe"}, "option assign is not JSON"),
    ({"startingOffsets": "first"}, {}, "option startingOffsets must be earliest, latest, committed, or offsets"),
    ({"startingOffsets": "{"}, {}, "option startingOffsets is not JSON"),
    ({"startingOffsets": '{"orders": {}}'}, {}, "option startingOffsets must have the form"),
    ({"startingOffsets": '{"orders": {"local:0": -3}}'}, {}, "option startingOffsets must contain offsets"),
    ({"startingOffsets": '{"orders": {"local:0": "7"}}'}, {}, "option startingOffsets must contain offsets"),
    ({"startingOffsets": '{"orders": {"local:0": true}}'}, {}, "option startingOffsets must contain offsets"),
    ({"startingOffsets": "committed"}, {}, "option group is missing"),
    ({"startingTimestamp": "yesterday"}, {}, "option startingTimestamp"),
    ({"startingTimestamp": "5", "startingOffsets": "latest"}, {}, "are mutually exclusive"),
    ({"startingOffsetsByTimestamp": '{"orders": {"local:0": 1.5}}'}, {}, "ByTimestamp must contain instants"),
    ({"startingOffsetsByTimestampStrategy": "none"}, {}, "StartingOffsetsByTimestampStrategy must be error or latest"),
    ({"endingOffsets": "earliest"}, {}, "option endingOffsets must be latest"),
    ({"endingOffsets": '{"orders": {"local:0": -2}}'}, {}, "option endingOffsets must contain offsets"),
    ({"endingOffsets": "latest"}, {"is_stream": True}, "option endingOffsets applies only to batch reads"),
    ({"maxOffsetsPerTrigger": "5"}, {}, "option maxOffsetsPerTrigger applies only to streams"),
    ({"maxOffsetsPerTrigger": "0"}, {"is_stream": True}, "maxOffsetsPerTrigger must be a whole number, at least 1"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, {"is_stream": True}, "minOffsetsPerTrigger must not"),
    ({"maxTriggerDelay": "soon"}, {"is_stream": True}, "option maxTriggerDelay"),
    ({"commitOffsets": "true"}, {"is_stream": True}, "option group is missing"),
    ({"minPartitions": "x"}, {}, "option minPartitions must be a whole number"),
    ({"minPartitions": "9", "maxPartitions": "2"}, {}, "option minPartitions must not exceed"),
    ({"failOnDataLoss": "maybe"}, {}, "option failOnDataLoss must be true or false"),
    ({"properties": "xml"}, {}, "option properties must be map or json or raw"),
    ({"undecodable": "drop"}, {}, "option undecodable must be fail or null"),
    ({"transport": "kafka"}, {}, "option transport must be http or rocketmq"),
    ({"nameServers": "a:1"}, {}, "option nameServers requires transport rocketmq"),
    (DIRECT, {}, "url and key require transport http"),
    ({"transport": "rocketmq"}, {"without": "url"}, "option nameServers is missing"),
    ({"timeout": "0"}, {}, "option timeout must be longer than 0"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "how", "expected"), BAD, ids=[expected for _, _, expected in BAD])
def test_an_invalid_option_is_reported_with_its_remedy(
    given: dict[str, str], how: dict[str, Any], expected: str
) -> None:
    """Users read the error on the driver to find out what to change."""
    with pytest.raises(OptionInvalid) as refused:
        options(**how, **given)

    assert expected.lower() in str(refused.value).lower()


def test_only_the_option_properties_affects_the_schema() -> None:
    """Spark requests the schema first, and other errors are reported when the query starts."""
    assert properties_kind({"PROPERTIES": "raw", "nonsense": "x"}) == "raw"


def test_every_option_is_described_in_one_line() -> None:
    """The reference page is generated from this table."""
    assert all(line and "\n" not in line for line in OPTIONS.values())
