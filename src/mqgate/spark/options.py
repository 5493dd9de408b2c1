"""Every option of the source, on one page; all of them are checked on the driver before any task runs."""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, NoReturn

from mqgate.core.errors import MqgateError
from mqgate.core.message import milliseconds
from mqgate.core.times import parse_duration, parse_instant
from mqgate.spark.offset_ranges import Positions

__all__ = [
    "CONNECTION",
    "OPTIONS",
    "Bound",
    "Connection",
    "OptionInvalid",
    "Properties",
    "Selection",
    "SourceOptions",
    "check_names",
    "connection",
    "duration",
    "number",
    "parse",
    "properties_kind",
]

CONNECTION: Mapping[str, str] = {
    "url": "a gateway, or several with commas between them: one that does not answer is left for the next",
    "key": "the key to show to the gateway: an administrator's to read, a producer's to write",
    "timeout": "how long to wait for an answer (default 30s)",
    "retries": "how often to try again where nobody answered, before the query fails (default 5)",
}
OPTIONS: Mapping[str, str] = {
    **CONNECTION,
    "transport": "http (default): through a gateway; rocketmq: executors read the brokers themselves",
    "nameServers": "RocketMQ's name servers, host:port with semicolons between them",
    "accessKey": "RocketMQ's ACL: who we are",
    "secretKey": "RocketMQ's ACL: the proof",
    "securityToken": "RocketMQ's ACL: a temporary token",
    "namespace": "RocketMQ's namespace, as in the gateway's settings",
    "tls": "true: TLS towards RocketMQ",
    "tlsCa": "the file with the authorities that RocketMQ's certificates are checked with",
    "subscribe": "topics, with commas between them",
    "subscribePattern": "a regular expression that a topic's whole name must match; new topics join while running",
    "assign": 'exactly these queues: {"orders": ["local:0", "local:1"]}',
    "startingOffsets": 'earliest (default of batch), latest (default of streams), committed (the group\'s), or {"orders": {"local:0": 17, "local:1": -2}} (-2 earliest, -1 latest)',  # noqa: E501 - one line of the table
    "startingTimestamp": "begin at an instant: RFC 3339, or milliseconds since 1970",
    "startingOffsetsByTimestamp": 'begin at an instant per queue: {"orders": {"local:0": 1700000000000}}',
    "startingOffsetsByTimestampStrategy": "where a queue has nothing that late: error (default) or latest",
    "endingOffsets": "batch: latest (default) or offsets as for startingOffsets",
    "endingTimestamp": "batch: end before an instant",
    "endingOffsetsByTimestamp": "batch: end before an instant per queue",
    "maxOffsetsPerTrigger": "streams: at most so many messages a batch, spread over the queues by their backlog",
    "minOffsetsPerTrigger": "streams: no batch before there are so many messages",
    "maxTriggerDelay": "streams: ... or before so much time has passed (default 15m)",
    "minPartitions": "at least so many tasks, where there are messages enough",
    "maxPartitions": "at most so many tasks; small queues share one (default: a task a queue)",
    "maxRecordsPerPartition": "no task reads more than so many messages of a queue",
    "failOnDataLoss": "true (default): messages that are gone before they were read fail the query; false: a warning with their number",  # noqa: E501 - one line of the table
    "properties": "map (default), json or raw (name U+0001 value U+0002 ...): how the column looks",
    "undecodable": "where `body STRING` is asked for and a body is no UTF-8: fail (default) or null",
    "group": "the group of `committed` and commitOffsets",
    "commitOffsets": "streams: true moves the group along, for whoever watches its lag; never used to recover",
}
Properties = Literal["map", "json", "raw"]
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")
_ROCKETMQ_ONLY = ("nameServers", "accessKey", "secretKey", "securityToken", "namespace", "tls", "tlsCa")
_EARLIEST, _LATEST = -2, -1


class OptionInvalid(ValueError):
    """An option that cannot be meant so; the text names it and the remedy."""


class Connection(NamedTuple):
    """How to reach the log; one client per process and connection."""

    transport: Literal["http", "rocketmq"]
    urls: tuple[str, ...]
    key: str | None
    timeout: float
    retries: int
    rocketmq: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"Connection({self.transport}, {self.urls})"


class Selection(NamedTuple):
    """Which queues: of these topics, of all topics that match, or exactly these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: Mapping[str, tuple[str, ...]] | None = None


class Bound(NamedTuple):
    """Where to begin or end. `offsets` and `instants` by topic and queue; an instant in milliseconds."""

    kind: Literal["earliest", "latest", "committed", "offsets", "instant", "instants"]
    by_queue: Positions | None = None
    instant_ms: int | None = None
    is_latest_if_none: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    connection: Connection
    selection: Selection
    starting: Bound
    ending: Bound
    max_offsets: int | None
    min_offsets: int | None
    max_delay: timedelta
    min_partitions: int | None
    max_partitions: int | None
    max_rows: int | None
    is_loss_fatal: bool
    properties: Properties
    is_undecodable_null: bool
    group: str | None
    is_committing: bool


def check_names(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The options by their own spelling: Spark does not tell capitals apart; unknown ones are refused."""
    lower = {name.lower(): name for name in known}
    found = {}
    for name, value in given.items():
        if name.lower() not in lower:
            near = difflib.get_close_matches(name.lower(), lower, 1)
            meant = f"did you mean {lower[near[0]]}?" if near else f"there are {', '.join(sorted(known))}"
            raise OptionInvalid(f"option {name} is unknown: {meant}")
        found[lower[name.lower()]] = value
    return found


def connection(options: Mapping[str, str]) -> Connection:
    """How to reach the gateway, or RocketMQ."""
    transport = _one_of(options, "transport", ("http", "rocketmq"))
    urls = tuple(url.strip() for url in options.get("url", "").split(",") if url.strip())
    rocketmq: dict[str, Any] = {}
    if transport == "rocketmq":
        if urls or "key" in options:
            raise OptionInvalid("options url and key belong to transport http: with rocketmq give nameServers")
        if not options.get("nameServers"):
            raise OptionInvalid('option nameServers is missing: where RocketMQ\'s name servers are, "host:9876"')
        rocketmq = {_snake(name): options[name] for name in _ROCKETMQ_ONLY if name in options}
        rocketmq["tls"] = _boolean(options, "tls", default=False)
        _check_security(options, is_tls=rocketmq["tls"])
    else:
        for name in _ROCKETMQ_ONLY:
            if name in options:
                raise OptionInvalid(f"option {name} belongs to transport rocketmq: set transport, or leave it out")
        if not urls:
            raise OptionInvalid("option url is missing: the gateway's address, such as http://127.0.0.1:8080")
    return Connection(
        transport,  # type: ignore[arg-type]  # one of the two
        urls,
        options.get("key"),
        duration(options, "timeout", timedelta(seconds=30)).total_seconds(),
        number(options, "retries", 0) if "retries" in options else 5,
        tuple(sorted(rocketmq.items())),
    )


def _check_security(options: Mapping[str, str], *, is_tls: bool) -> None:
    """Nobody is to believe that something protects what nothing does."""
    if "tlsCa" in options and not is_tls:
        raise OptionInvalid("option tlsCa has no effect without tls: set tls to true, or leave tlsCa out")
    if "accessKey" not in options and {"secretKey", "securityToken"} & options.keys():
        raise OptionInvalid("option accessKey is missing: secretKey and securityToken are the proof of who we are")


def properties_kind(given: Mapping[str, str]) -> Properties:
    """How the column `properties` looks; the only option that decides on the schema."""
    options = {name.lower(): value for name, value in given.items()}
    return _one_of(options, "properties", ("map", "json", "raw"))  # type: ignore[return-value]  # one of them


def parse(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """All options, or an OptionInvalid that names the first bad one."""
    options = check_names(given, OPTIONS)
    for name in _BATCH_ONLY if is_stream else _STREAM_ONLY:
        if name in options:
            kind, other = ("streams", "batch reads") if is_stream else ("batch reads", "streams")
            raise OptionInvalid(f"option {name} is for {other}: {kind} do not take it")
    group = options.get("group")
    starting = _starting(options, "latest" if is_stream else "earliest")
    is_committing = _boolean(options, "commitOffsets", default=False)
    if group is None and (is_committing or starting.kind == "committed"):
        raise OptionInvalid("option group is missing: whose offsets are meant")
    found = SourceOptions(
        connection=connection(options),
        selection=_selection(options),
        starting=starting,
        ending=_ending(options),
        max_offsets=_maybe_number(options, "maxOffsetsPerTrigger"),
        min_offsets=_maybe_number(options, "minOffsetsPerTrigger"),
        max_delay=duration(options, "maxTriggerDelay", timedelta(minutes=15)),
        min_partitions=_maybe_number(options, "minPartitions"),
        max_partitions=_maybe_number(options, "maxPartitions"),
        max_rows=_maybe_number(options, "maxRecordsPerPartition"),
        is_loss_fatal=_boolean(options, "failOnDataLoss", default=True),
        properties=properties_kind(options),
        is_undecodable_null=_one_of(options, "undecodable", ("fail", "null")) == "null",
        group=group,
        is_committing=is_committing,
    )
    if found.min_offsets and found.max_offsets and found.min_offsets > found.max_offsets:
        raise OptionInvalid("option minOffsetsPerTrigger must not be above maxOffsetsPerTrigger")
    if found.min_partitions and found.max_partitions and found.min_partitions > found.max_partitions:
        raise OptionInvalid("option minPartitions must not be above maxPartitions")
    return found


def _selection(options: Mapping[str, str]) -> Selection:
    name = _only_one(options, ("subscribe", "subscribePattern", "assign"))
    if name is None:
        raise OptionInvalid("one of the options subscribe, subscribePattern and assign is needed: which topics to read")
    value = options[name]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        return Selection(topics) if topics else _refuse(name, "must name a topic")
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            _refuse(name, f"is no regular expression: {error}")
        return Selection(pattern=value)
    queues = _json(options, name, lambda found: isinstance(found, list) and all(isinstance(q, str) for q in found))
    return Selection(queues={topic: tuple(found) for topic, found in queues.items()})


def _starting(options: Mapping[str, str], default: str) -> Bound:
    names = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    name = _only_one(options, names)
    strategy = _one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    bound = _bound(options, name, default, ("earliest", "latest", "committed"))
    return bound._replace(is_latest_if_none=strategy == "latest")


def _ending(options: Mapping[str, str]) -> Bound:
    name = _only_one(options, _BATCH_ONLY)
    # To end before an instant that nothing has reached yet is to end at the end.
    return _bound(options, name, "latest", ("latest",))._replace(is_latest_if_none=True)


def _bound(options: Mapping[str, str], name: str | None, default: str, words: tuple[str, ...]) -> Bound:
    value = default if name is None else options[name].strip()
    if value in words:
        return Bound(value)  # type: ignore[arg-type]  # a word that a bound knows
    assert name is not None  # noqa: S101 - the default is a word
    if name.endswith("Timestamp") and "By" not in name:
        return Bound("instant", instant_ms=_instant(name, int(value) if value.isdigit() else value))
    if not value.startswith("{"):
        _refuse(name, f'must be {", ".join(words)}, or offsets as {{"orders": {{"local:0": 17}}}}')
    if name.endswith("ByTimestamp"):
        given = _json(options, name, lambda found: isinstance(found, dict) and bool(found))
        return Bound(
            "instants", {t: {q: _instant(name, at) for q, at in queues.items()} for t, queues in given.items()}
        )
    lowest = _LATEST if "earliest" not in words else _EARLIEST
    given = _json(options, name, lambda found: isinstance(found, dict) and bool(found))
    for topic, queues in given.items():
        for queue, offset in queues.items():
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < lowest:
                _refuse(name, f"must hold offsets: {topic} {queue} has {offset!r} (-1 is latest, -2 earliest)")
    return Bound("offsets", given)


def _json(options: Mapping[str, str], name: str, is_value: Callable[[Any], bool]) -> dict[str, Any]:
    example = '{"orders": ["local:0"]}' if name == "assign" else '{"orders": {"local:0": 17}}'
    try:
        found = json.loads(options[name])
    except ValueError as error:
        _refuse(name, f"is no JSON ({error}): it looks like {example}")
    if not isinstance(found, dict) or not found or not all(is_value(each) for each in found.values()):
        _refuse(name, f"must look like {example}")
    return found


def _only_one(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise OptionInvalid(f"options {' and '.join(given)} exclude each other: give one")
    return given[0] if given else None


def _one_of(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """The first word is the default."""
    value = options.get(name, words[0]).strip().lower()
    return value if value in words else _refuse(name, f"must be {' or '.join(words)}")


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(options, name, ("true", "false") if default else ("false", "true")) == "true"


def _maybe_number(options: Mapping[str, str], name: str) -> int | None:
    return number(options, name, 1) if name in options else None


def number(options: Mapping[str, str], name: str, least: int, most: int | None = None) -> int:
    """A whole number within limits."""
    value = options[name].strip()
    if not (value.isascii() and value.isdigit()) or int(value) < least or (most and int(value) > most):
        _refuse(name, f"must be a whole number from {least} {f'to {most}' if most else 'on'}")
    return int(value)


def duration(options: Mapping[str, str], name: str, default: timedelta) -> timedelta:
    """A duration as the gateway takes it: seconds, or 1500ms 30s 15m 2h 10d."""
    if name not in options:
        return default
    value = options[name].strip()
    try:
        found = parse_duration(float(value) if value.replace(".", "", 1).isdigit() else value, name)
    except MqgateError as error:
        _refuse(name, str(error))
    return found or _refuse(name, "must be longer than nothing")


def _instant(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        _refuse(name, "must hold instants: RFC 3339, or milliseconds since 1970")
    try:
        return milliseconds(parse_instant(value, name))
    except MqgateError as error:
        _refuse(name, str(error))


def _refuse(name: str, what: str) -> NoReturn:
    raise OptionInvalid(f"option {name} {what.removeprefix(name).strip()}")


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)
