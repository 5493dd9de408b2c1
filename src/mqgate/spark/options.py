"""All options of the source. They are checked on the driver before any task runs."""

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
    "url": "address of a gateway, or several separated by commas; if one does not respond, the next one is used",
    "key": "API key: an administrator key to read, a producer key to write",
    "timeout": "maximum time to wait for a response (default 30s)",
    "retries": "maximum retries without a response, before the query fails (default 5)",
}
OPTIONS: Mapping[str, str] = {
    **CONNECTION,
    "transport": "http (default): read through a gateway; rocketmq: executors read from the brokers directly",
    "nameServers": "RocketMQ name servers, host:port separated by semicolons",
    "accessKey": "RocketMQ ACL: access key",
    "secretKey": "RocketMQ ACL: secret key",
    "securityToken": "RocketMQ ACL: temporary security token",
    "namespace": "RocketMQ namespace, as in the settings of the gateway",
    "tls": "true: use TLS for RocketMQ connections",
    "tlsCa": "file with the CA certificates that verify the certificates of RocketMQ",
    "subscribe": "topics, separated by commas",
    "subscribePattern": "regular expression for whole topic names; a stream adds new matching topics while it runs",
    "assign": 'only these queues: {"orders": ["local:0", "local:1"]}',
    "startingOffsets": 'earliest (default of batch), latest (default of streams), committed (offsets of the group), or {"orders": {"local:0": 17, "local:1": -2}} (-2 earliest, -1 latest)',  # noqa: E501 - one line of the table
    "startingTimestamp": "start at an instant: RFC 3339, or milliseconds since 1970",
    "startingOffsetsByTimestamp": 'start at an instant per queue: {"orders": {"local:0": 1700000000000}}',
    "startingOffsetsByTimestampStrategy": "if a queue has no message since the instant: error (default) or latest",
    "endingOffsets": "batch: latest (default) or offsets as for startingOffsets",
    "endingTimestamp": "batch: end before an instant",
    "endingOffsetsByTimestamp": "batch: end before an instant per queue",
    "maxOffsetsPerTrigger": "streams: maximum messages per batch, distributed over the queues by their backlog",
    "minOffsetsPerTrigger": "streams: minimum messages that start a batch",
    "maxTriggerDelay": "streams: maximum delay of a batch by minOffsetsPerTrigger (default 15m)",
    "minPartitions": "minimum number of tasks, if there are enough messages",
    "maxPartitions": "maximum number of tasks; small queues share a task (default: one task per queue)",
    "maxRecordsPerPartition": "maximum messages of a queue per task",
    "failOnDataLoss": "true (default): the query fails if messages were deleted before they were read; false: it logs a warning with their number",  # noqa: E501 - one line of the table
    "properties": "format of the column: map (default), json or raw (name U+0001 value U+0002 ...)",
    "undecodable": "if the schema has `body STRING` and a body is not UTF-8: fail (default) or null",
    "group": "group for `committed` and commitOffsets",
    "commitOffsets": "streams: true commits offsets for the group to show its lag; they are not used to recover",
}
Properties = Literal["map", "json", "raw"]
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")
_ROCKETMQ_ONLY = ("nameServers", "accessKey", "secretKey", "securityToken", "namespace", "tls", "tlsCa")
_EARLIEST, _LATEST = -2, -1


class OptionInvalid(ValueError):
    """An invalid option. The text names the option and the remedy."""


class Connection(NamedTuple):
    """Connection parameters of the log. Each process has one client per connection."""

    transport: Literal["http", "rocketmq"]
    urls: tuple[str, ...]
    key: str | None
    timeout: float
    retries: int
    rocketmq: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"Connection({self.transport}, {self.urls})"


class Selection(NamedTuple):
    """The selected queues: by topic, by pattern, or by name."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: Mapping[str, tuple[str, ...]] | None = None


class Bound(NamedTuple):
    """A start or an end. `by_queue` has offsets, or instants in milliseconds, by topic and queue."""

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
    """Return the options by their documented spelling, because Spark ignores case. Reject unknown options."""
    lower = {name.lower(): name for name in known}
    found = {}
    for name, value in given.items():
        if name.lower() not in lower:
            near = difflib.get_close_matches(name.lower(), lower, 1)
            meant = f"did you mean {lower[near[0]]}?" if near else f"use one of {', '.join(sorted(known))}"
            raise OptionInvalid(f"option {name} is unknown: {meant}")
        found[lower[name.lower()]] = value
    return found


def connection(options: Mapping[str, str]) -> Connection:
    """Return the connection parameters of the gateway or of RocketMQ."""
    transport = _one_of(options, "transport", ("http", "rocketmq"))
    urls = tuple(url.strip() for url in options.get("url", "").split(",") if url.strip())
    rocketmq: dict[str, Any] = {}
    if transport == "rocketmq":
        if urls or "key" in options:
            raise OptionInvalid("options url and key require transport http: with rocketmq, set nameServers")
        if not options.get("nameServers"):
            raise OptionInvalid(
                'option nameServers is missing: set the addresses of the RocketMQ name servers, such as "host:9876"'
            )
        rocketmq = {_snake(name): options[name] for name in _ROCKETMQ_ONLY if name in options}
        rocketmq["tls"] = _boolean(options, "tls", default=False)
        _check_security(options, is_tls=rocketmq["tls"])
    else:
        for name in _ROCKETMQ_ONLY:
            if name in options:
                raise OptionInvalid(f"option {name} requires transport rocketmq: set transport, or remove the option")
        if not urls:
            raise OptionInvalid("option url is missing: set the address of the gateway, such as http://127.0.0.1:8080")
    return Connection(
        transport,  # type: ignore[arg-type]  # one of the two
        urls,
        options.get("key"),
        duration(options, "timeout", timedelta(seconds=30)).total_seconds(),
        number(options, "retries", 0) if "retries" in options else 5,
        tuple(sorted(rocketmq.items())),
    )


def _check_security(options: Mapping[str, str], *, is_tls: bool) -> None:
    """Reject security options that would have no effect."""
    if "tlsCa" in options and not is_tls:
        raise OptionInvalid("option tlsCa has no effect without tls: set tls to true, or remove tlsCa")
    if "accessKey" not in options and {"secretKey", "securityToken"} & options.keys():
        raise OptionInvalid("option accessKey is missing: secretKey and securityToken have no effect without it")


def properties_kind(given: Mapping[str, str]) -> Properties:
    """Return the format of the column `properties`, the only option that affects the schema."""
    options = {name.lower(): value for name, value in given.items()}
    return _one_of(options, "properties", ("map", "json", "raw"))  # type: ignore[return-value]  # one of them


def parse(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Parse all options. Raise OptionInvalid for the first invalid one."""
    options = check_names(given, OPTIONS)
    for name in _BATCH_ONLY if is_stream else _STREAM_ONLY:
        if name in options:
            kind, other = ("streams", "batch reads") if is_stream else ("batch reads", "streams")
            raise OptionInvalid(f"option {name} applies only to {other}: remove it from {kind}")
    group = options.get("group")
    starting = _starting(options, "latest" if is_stream else "earliest")
    is_committing = _boolean(options, "commitOffsets", default=False)
    if group is None and (is_committing or starting.kind == "committed"):
        raise OptionInvalid("option group is missing: committed and commitOffsets require it")
    found = SourceOptions(
        connection=connection(options),
        selection=_selection(options),
        starting=starting,
        ending=_ending(options),
        max_offsets=_optional_number(options, "maxOffsetsPerTrigger"),
        min_offsets=_optional_number(options, "minOffsetsPerTrigger"),
        max_delay=duration(options, "maxTriggerDelay", timedelta(minutes=15)),
        min_partitions=_optional_number(options, "minPartitions"),
        max_partitions=_optional_number(options, "maxPartitions"),
        max_rows=_optional_number(options, "maxRecordsPerPartition"),
        is_loss_fatal=_boolean(options, "failOnDataLoss", default=True),
        properties=properties_kind(options),
        is_undecodable_null=_one_of(options, "undecodable", ("fail", "null")) == "null",
        group=group,
        is_committing=is_committing,
    )
    if found.min_offsets and found.max_offsets and found.min_offsets > found.max_offsets:
        raise OptionInvalid("option minOffsetsPerTrigger must not exceed maxOffsetsPerTrigger")
    if found.min_partitions and found.max_partitions and found.min_partitions > found.max_partitions:
        raise OptionInvalid("option minPartitions must not exceed maxPartitions")
    return found


def _selection(options: Mapping[str, str]) -> Selection:
    name = _only_one(options, ("subscribe", "subscribePattern", "assign"))
    if name is None:
        raise OptionInvalid(
            "set one of the options subscribe, subscribePattern and assign: they select the topics to read"
        )
    value = options[name]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        return Selection(topics) if topics else _refuse(name, "must name a topic")
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            _refuse(name, f"is not a regular expression: {error}")
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
    # If no message is stored at or after the ending instant, the read ends at the end of the queue.
    return _bound(options, name, "latest", ("latest",))._replace(is_latest_if_none=True)


def _bound(options: Mapping[str, str], name: str | None, default: str, words: tuple[str, ...]) -> Bound:
    value = default if name is None else options[name].strip()
    if value in words:
        return Bound(value)  # type: ignore[arg-type]  # one of the literals
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
                _refuse(name, f"must contain offsets: {topic} {queue} has {offset!r} (-1 is latest, -2 earliest)")
    return Bound("offsets", given)


def _json(options: Mapping[str, str], name: str, is_value: Callable[[Any], bool]) -> dict[str, Any]:
    example = '{"orders": ["local:0"]}' if name == "assign" else '{"orders": {"local:0": 17}}'
    try:
        found = json.loads(options[name])
    except ValueError as error:
        _refuse(name, f"is not JSON ({error}): write it like {example}")
    if not isinstance(found, dict) or not found or not all(is_value(value) for value in found.values()):
        _refuse(name, f"must have the form {example}")
    return found


def _only_one(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise OptionInvalid(f"options {' and '.join(given)} are mutually exclusive: set one of them")
    return given[0] if given else None


def _one_of(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """Return the value of an option. The first word is the default."""
    value = options.get(name, words[0]).strip().lower()
    return value if value in words else _refuse(name, f"must be {' or '.join(words)}")


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(options, name, ("true", "false") if default else ("false", "true")) == "true"


def _optional_number(options: Mapping[str, str], name: str) -> int | None:
    return number(options, name, 1) if name in options else None


def number(options: Mapping[str, str], name: str, min_value: int, max_value: int | None = None) -> int:
    """Return a whole number within limits."""
    value = options[name].strip()
    if not (value.isascii() and value.isdigit()) or int(value) < min_value or (max_value and int(value) > max_value):
        _refuse(
            name, f"must be a whole number, {f'{min_value} to {max_value}' if max_value else f'at least {min_value}'}"
        )
    return int(value)


def duration(options: Mapping[str, str], name: str, default: timedelta) -> timedelta:
    """Return a duration in the format of the gateway: seconds, or 1500ms 30s 15m 2h 10d."""
    if name not in options:
        return default
    value = options[name].strip()
    try:
        found = parse_duration(float(value) if value.replace(".", "", 1).isdigit() else value, name)
    except MqgateError as error:
        _refuse(name, str(error))
    return found or _refuse(name, "must be longer than 0")


def _instant(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        _refuse(name, "must contain instants: RFC 3339, or milliseconds since 1970")
    try:
        return milliseconds(parse_instant(value, name))
    except MqgateError as error:
        _refuse(name, str(error))


def _refuse(name: str, what: str) -> NoReturn:
    raise OptionInvalid(f"option {name} {what.removeprefix(name).strip()}")


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)
