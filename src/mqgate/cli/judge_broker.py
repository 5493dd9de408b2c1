"""What to make of what one broker tells of itself: its clock, its disk, its settings; no server is asked here."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mqgate.cli.check import Check
from mqgate.rocketmq.errors import Refused, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode

__all__ = ["Told", "judge_access", "judge_broker_clock", "judge_broker_settings", "judge_disk", "judge_durability"]

_TOLERATED_SKEW = 2.0
_READ_AND_WRITE = "6"
_MIB = 1 << 20


class Told(NamedTuple):
    """A broker's runtime table, between which two instants (Unix time) it was told, and its settings."""

    runtime: Mapping[str, str]
    asked_at: float
    answered_at: float
    config: Mapping[str, str]


def judge_access(broker: str, error: RocketMQError, *, has_user: bool) -> Check:
    """Why a broker did not let us look: it is away, it wants a user, or it does not let this user in."""
    if not isinstance(error, Refused):
        hint = "the address is the one that the broker told the name servers (brokerIP1)"
        return Check(check=f"{broker}: reachable", status="fail", detail=f"{error}; {hint}")
    check = f"{broker}: access"
    # Brokers before 5.0 answer a general error, and name the exception.
    if error.code != ResponseCode.NO_PERMISSION and "AclException" not in error.remark:
        return Check(check=check, status="fail", detail=str(error))
    if has_user:
        return Check(check=check, status="fail", detail=f"refuses the user of [rocketmq] access_key: {error.remark}")
    detail = f"wants a user: set [rocketmq] access_key and secret_key ({error.remark})"
    return Check(check=check, status="fail", detail=detail)


def judge_broker_clock(broker: str, told: Told) -> Check:
    """How far its clock and ours are apart: it dates messages, we decide about leases and delays.

    It tells when it booted and, in whole seconds, for how long it has run; the sum is a moment between question and
    answer, so the difference is known up to a second and the time that the answer took.
    """
    check = f"{broker}: clock"
    parts = [int(part) for part in re.findall(r"\d+", told.runtime.get("runtime", ""))]
    boot = told.runtime.get("bootTimestamp", "")
    if len(parts) != 4 or not boot.isdigit():  # noqa: PLR2004 - days, hours, minutes, seconds
        return Check(check=check, status="warn", detail="the broker does not tell its time")
    days, hours, minutes, seconds = parts
    theirs = int(boot) / 1000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    least, most = told.asked_at - theirs - 1, told.answered_at - theirs
    if least > _TOLERATED_SKEW:
        return Check(check=check, status="warn", detail=f"at least {least:.0f} s behind this machine")
    if most < -_TOLERATED_SKEW:
        return Check(check=check, status="warn", detail=f"at least {-most:.0f} s ahead of this machine")
    return Check(check=check, status="ok", detail="agrees with this machine")


def judge_durability(broker: str, config: Mapping[str, str]) -> Check:
    """What a 2xx is worth after a power cut."""
    check = f"{broker}: durability"
    flush, role = config.get("flushDiskType", ""), config.get("brokerRole", "")
    if role == "SLAVE":
        return Check(check=check, status="fail", detail="it is registered as a master, and its brokerRole is SLAVE")
    if flush == "SYNC_FLUSH":
        return Check(check=check, status="ok", detail=f"{flush}, {role}: on disk before the answer")
    detail = f"{flush or 'unknown flushDiskType'}, {role}: a power cut may lose what was answered 2xx"
    return Check(check=check, status="warn", detail=detail)


def judge_disk(broker: str, told: Told) -> Check:
    """How near the disk is to the marks at which a broker deletes what is not expired, and then refuses writes."""
    check = f"{broker}: disk"
    forced = _ratio(told.config.get("diskSpaceCleanForciblyRatio"), 0.85)
    refused = _ratio(told.config.get("diskSpaceWarningLevelRatio"), 0.9)
    try:
        used = max(float(told.runtime[name]) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio"))
    except (KeyError, ValueError):
        return Check(check=check, status="warn", detail="the broker does not tell how full it is")
    if used > refused:
        return Check(check=check, status="fail", detail=f"{used:.0%} full: above {refused:.0%} it refuses messages")
    if used > forced:
        is_forced = told.config.get("cleanFileForciblyEnable", "true") == "true"
        deletes = "it deletes messages before their time, and " if is_forced else ""
        detail = f"{used:.0%} full: {deletes}above {refused:.0%} it refuses messages"
        return Check(check=check, status="warn", detail=detail)
    return Check(check=check, status="ok", detail=f"{used:.0%} full")


def judge_broker_settings(broker: str, config: Mapping[str, str], max_message_bytes: int) -> Iterator[Check]:
    """Settings that change what the gateway can promise."""
    faults = list(_faults(config, max_message_bytes))
    for setting, detail in faults:
        yield Check(check=f"{broker}: {setting}", status="warn", detail=detail)
    if not faults:
        yield Check(check=f"{broker}: settings", status="ok", detail="as the gateway needs them")
    kept, at_once = config.get("fileReservedTime", "?"), config.get("maxTransferCountOnMessageInMemory", "?")
    yield Check(check=f"{broker}: retention", status="ok", detail=f"messages are kept for {kept} h (fileReservedTime)")
    yield Check(check=f"{broker}: pulls", status="ok", detail=f"at most {at_once} messages each")


def _faults(config: Mapping[str, str], max_message_bytes: int) -> Iterator[tuple[str, str]]:
    largest = config.get("maxMessageSize", "")
    if largest.isdigit() and int(largest) < max_message_bytes:
        sizes = f"{int(largest) / _MIB:.1f} MiB, and [http] max_message_bytes is {max_message_bytes / _MIB:.1f} MiB"
        yield "maxMessageSize", f"{sizes}: messages in between are refused by the broker"
    if config.get("autoCreateTopicEnable") == "true":
        yield "autoCreateTopicEnable", "true: a topic that was deleted comes back, on one broker and with few queues"
    if config.get("messageIndexEnable") == "false":
        yield "messageIndexEnable", "false: messages cannot be looked up by id or key"
    permission = config.get("brokerPermission", _READ_AND_WRITE)
    if permission != _READ_AND_WRITE:
        yield "brokerPermission", f"{permission}, not 6: it does not both take messages and give them"


def _ratio(text: str | None, default: float) -> float:
    """A mark in per cent; brokers take none above the default."""
    return min(int(text) / 100, default) if text is not None and text.isdigit() else default
