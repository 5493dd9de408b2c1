"""Checks of the status of one broker: its clock, disk and settings. Pure functions without I/O."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mqgate.cli.check import Check
from mqgate.rocketmq.errors import Refused, RocketMQError
from mqgate.rocketmq.faults import FaultKind, kind_of

__all__ = [
    "BrokerStatus",
    "check_access",
    "check_broker_clock",
    "check_broker_settings",
    "check_disk",
    "check_durability",
]

_MAX_SKEW = 2.0
_READ_AND_WRITE = "6"
_MIB = 1 << 20


class BrokerStatus(NamedTuple):
    """Runtime table of a broker, the Unix times of the request and the response, and the broker settings."""

    runtime: Mapping[str, str]
    requested_at: float
    responded_at: float
    config: Mapping[str, str]


def check_access(broker: str, error: RocketMQError, *, has_user: bool) -> Check:
    """Explain why a broker refused access: unreachable, user required, or user refused."""
    if not isinstance(error, Refused):
        hint = "the broker registered this address at the name servers (brokerIP1)"
        return Check(check=f"{broker}: reachable", status="fail", detail=f"{error}; {hint}")
    check = f"{broker}: access"
    if kind_of(error) is not FaultKind.ACCESS_DENIED:
        return Check(check=check, status="fail", detail=str(error))
    if has_user:
        return Check(
            check=check, status="fail", detail=f"the broker refused the user of [rocketmq] access_key: {error.remark}"
        )
    detail = f"requires a user: set [rocketmq] access_key and secret_key ({error.remark})"
    return Check(check=check, status="fail", detail=detail)


def check_broker_clock(broker: str, status: BrokerStatus) -> Check:
    """Compare the clocks of a broker and this machine. Brokers date messages; gateways decide on leases and delays.

    A broker reports its boot time and its uptime in whole seconds. Their sum is an instant between request and
    response, so the difference is known up to one second plus the response time.
    """
    check = f"{broker}: clock"
    parts = [int(part) for part in re.findall(r"\d+", status.runtime.get("runtime", ""))]
    boot = status.runtime.get("bootTimestamp", "")
    if len(parts) != 4 or not boot.isdigit():  # noqa: PLR2004 - days, hours, minutes, seconds
        return Check(check=check, status="warn", detail="the broker does not report its time")
    days, hours, minutes, seconds = parts
    broker_time = int(boot) / 1000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    min_skew, max_skew = status.requested_at - broker_time - 1, status.responded_at - broker_time
    if min_skew > _MAX_SKEW:
        return Check(check=check, status="warn", detail=f"at least {min_skew:.0f} s behind this machine")
    if max_skew < -_MAX_SKEW:
        return Check(check=check, status="warn", detail=f"at least {-max_skew:.0f} s ahead of this machine")
    return Check(check=check, status="ok", detail="agrees with this machine")


def check_durability(broker: str, config: Mapping[str, str]) -> Check:
    """Check whether messages answered 2xx survive a power failure."""
    check = f"{broker}: durability"
    flush, role = config.get("flushDiskType", ""), config.get("brokerRole", "")
    if role == "SLAVE":
        return Check(
            check=check, status="fail", detail="the broker is registered as a master, but its brokerRole is SLAVE"
        )
    if flush == "SYNC_FLUSH":
        return Check(check=check, status="ok", detail=f"{flush}, {role}: messages are on disk before the response")
    detail = f"{flush or 'unknown flushDiskType'}, {role}: a power failure may lose messages answered 2xx"
    return Check(check=check, status="warn", detail=detail)


def check_disk(broker: str, status: BrokerStatus) -> Check:
    """Compare the disk usage with the levels at which a broker deletes unexpired messages and refuses writes."""
    check = f"{broker}: disk"
    forced = _ratio(status.config.get("diskSpaceCleanForciblyRatio"), 0.85)
    refused = _ratio(status.config.get("diskSpaceWarningLevelRatio"), 0.9)
    try:
        used = max(float(status.runtime[name]) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio"))
    except (KeyError, ValueError):
        return Check(check=check, status="warn", detail="the broker does not report its disk usage")
    if used > refused:
        return Check(
            check=check, status="fail", detail=f"{used:.0%} full: above {refused:.0%} the broker refuses messages"
        )
    if used > forced:
        is_forced = status.config.get("cleanFileForciblyEnable", "true") == "true"
        deletes = "the broker deletes unexpired messages, and " if is_forced else ""
        detail = f"{used:.0%} full: {deletes}above {refused:.0%} the broker refuses messages"
        return Check(check=check, status="warn", detail=detail)
    return Check(check=check, status="ok", detail=f"{used:.0%} full")


def check_broker_settings(broker: str, config: Mapping[str, str], max_message_bytes: int) -> Iterator[Check]:
    """Check the broker settings that affect the guarantees of the gateway."""
    faults = list(_faults(config, max_message_bytes))
    for setting, detail in faults:
        yield Check(check=f"{broker}: {setting}", status="warn", detail=detail)
    if not faults:
        yield Check(check=f"{broker}: settings", status="ok", detail="suitable for the gateway")
    retention, pull_size = config.get("fileReservedTime", "?"), config.get("maxTransferCountOnMessageInMemory", "?")
    yield Check(
        check=f"{broker}: retention", status="ok", detail=f"messages are kept for {retention} h (fileReservedTime)"
    )
    yield Check(check=f"{broker}: pulls", status="ok", detail=f"at most {pull_size} messages per pull")


def _faults(config: Mapping[str, str], max_message_bytes: int) -> Iterator[tuple[str, str]]:
    largest = config.get("maxMessageSize", "")
    if largest.isdigit() and int(largest) < max_message_bytes:
        sizes = f"{int(largest) / _MIB:.1f} MiB, and [http] max_message_bytes is {max_message_bytes / _MIB:.1f} MiB"
        yield "maxMessageSize", f"{sizes}: the broker refuses messages of sizes in between"
    if config.get("autoCreateTopicEnable") == "true":
        yield "autoCreateTopicEnable", "true: a deleted topic is created again, on one broker and with few queues"
    if config.get("messageIndexEnable") == "false":
        yield "messageIndexEnable", "false: messages cannot be looked up by id or key"
    permission = config.get("brokerPermission", _READ_AND_WRITE)
    if permission != _READ_AND_WRITE:
        yield "brokerPermission", f"{permission}, not 6: the broker does not allow both reads and writes"


def _ratio(text: str | None, default: float) -> float:
    """Parse a percentage. Brokers accept no value above the default."""
    return min(int(text) / 100, default) if text is not None and text.isdigit() else default
