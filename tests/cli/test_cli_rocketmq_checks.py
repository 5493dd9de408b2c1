"""The RocketMQ checks of `mqgate doctor`, without servers."""

from collections.abc import Mapping

import pytest

from mqgate.cli.broker_checks import (
    BrokerStatus,
    check_access,
    check_broker_clock,
    check_broker_settings,
    check_disk,
    check_durability,
)
from mqgate.cli.check import Check
from mqgate.cli.cluster_checks import check_cluster, check_name_servers, check_version, check_versions
from mqgate.rocketmq.errors import NotSent, Refused, RocketMQError
from mqgate.rocketmq.routes import Broker

MIB = 1 << 20
NOON = 1_900_000_000.0
UP = {"bootTimestamp": f"{int(NOON - 90_061) * 1000}", "runtime": "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"}
ALPHA, BETA = Broker("broker-a", "alpha", "10.0.0.1:10911"), Broker("broker-b", "beta", "10.0.0.2:10911")
SOUND = {
    "maxMessageSize": str(4 * MIB),
    "autoCreateTopicEnable": "false",
    "messageIndexEnable": "true",
    "brokerPermission": "6",
    "fileReservedTime": "72",
    "maxTransferCountOnMessageInMemory": "32",
}


def _broker_status(asked_at: float = NOON, answered_at: float = NOON, **runtime: str) -> BrokerStatus:
    return BrokerStatus(UP | runtime, asked_at, answered_at, {})


def _statuses(checks: list[Check]) -> dict[str, str]:
    return {check.check: check.status for check in checks}


def test_one_unreachable_name_server_is_a_failed_check() -> None:
    """The gateway reads from any name server, but must register topics at all of them."""
    reported = {"ns-1:9876": [ALPHA], "ns-2:9876": NotSent("ns-2:9876 cannot be reached")}

    assert _statuses(list(check_name_servers(reported))) == {
        "name server ns-1:9876": "ok",
        "name server ns-2:9876": "fail",
    }


@pytest.mark.parametrize("other", [[], [ALPHA._replace(master="10.0.0.9:10911")]])
def test_name_servers_that_know_different_brokers_are_named(other: list[Broker]) -> None:
    """A broker that is registered at one name server only is visible by chance."""
    checks = list(check_name_servers({"ns-1:9876": [ALPHA], "ns-2:9876": other}))

    assert checks[1].status == "warn"
    assert "broker-a" in checks[1].detail


@pytest.mark.parametrize(
    ("brokers", "cluster", "status"),
    [
        ([ALPHA], "", "ok"),
        ([ALPHA, BETA], "beta", "ok"),
        ([ALPHA, BETA], "", "fail"),
        ([ALPHA], "beta", "fail"),
        ([], "", "fail"),
        ([ALPHA._replace(master=None)], "alpha", "fail"),
    ],
)
def test_there_must_be_one_cluster_with_a_master(brokers: list[Broker], cluster: str, status: str) -> None:
    """In each of these cases a gateway starts but cannot register a topic."""
    assert _statuses(list(check_cluster(brokers, cluster)))["cluster"] == status


def test_a_broker_without_a_master_is_reported() -> None:
    """The cluster works, but some keys are refused, which is hard to diagnose."""
    half = [ALPHA, Broker("broker-c", "alpha", None)]

    assert _statuses(list(check_cluster(half, ""))) == {"cluster": "ok", "broker-c: reachable": "warn"}


@pytest.mark.parametrize(
    ("text", "status"),
    [("V5_5_0", "ok"), ("V5_0_0", "ok"), ("V4_9_8", "warn"), ("V4_8_0", "fail"), ("V10_0_0", "ok"), ("", "warn")],
)
def test_old_brokers_are_reported(text: str, status: str) -> None:
    """They lack requests of the gateway, which would fail later, one by one."""
    assert check_version("broker-a", text).status == status


def test_brokers_of_different_versions_are_a_warning() -> None:
    """An unfinished upgrade is a frequent cause."""
    assert not list(check_versions({"a": "V5_5_0", "b": "V5_5_0"}))
    assert [check.status for check in check_versions({"a": "V5_5_0", "b": "V5_3_3"})] == ["warn"]


@pytest.mark.parametrize(
    ("ahead", "took", "status"),
    [
        (0.0, 0.0, "ok"),
        (0.99, 0.0, "ok"),
        (2.0, 0.0, "ok"),
        (-2.9, 0.0, "ok"),
        (2.5, 0.0, "warn"),
        (-3.5, 0.0, "warn"),
        (-3.5, 5.0, "warn"),
        (4.0, 5.0, "ok"),
        (3600.0, 1.0, "warn"),
    ],
)
def test_a_slow_response_is_not_reported_as_a_wrong_clock(ahead: float, took: float, status: str) -> None:
    """A broker reports whole seconds, and a busy one responds late; neither is a wrong clock."""
    # It answers at once, and the answer travels for as long as it `took`.
    reported = _broker_status(asked_at=NOON - ahead, answered_at=NOON - ahead + took)

    assert check_broker_clock("broker-a", reported).status == status


@pytest.mark.parametrize("runtime", [{"runtime": "long"}, {"bootTimestamp": "then"}, {"runtime": ""}])
def test_a_broker_that_reports_no_time_is_a_warning(runtime: dict[str, str]) -> None:
    """Another version may use another format."""
    assert check_broker_clock("broker-a", _broker_status(**runtime)).status == "warn"


@pytest.mark.parametrize(
    ("flush", "role", "status"),
    [
        ("SYNC_FLUSH", "ASYNC_MASTER", "ok"),
        ("SYNC_FLUSH", "SYNC_MASTER", "ok"),
        ("ASYNC_FLUSH", "SYNC_MASTER", "warn"),
        ("ASYNC_FLUSH", "ASYNC_MASTER", "warn"),
        ("SYNC_FLUSH", "SLAVE", "fail"),
    ],
)
def test_asynchronous_flush_is_a_warning(flush: str, role: str, status: str) -> None:
    """It is the default of RocketMQ, and a 2xx does not survive a power failure."""
    assert check_durability("broker-a", {"flushDiskType": flush, "brokerRole": role}).status == status


@pytest.mark.parametrize(
    ("used", "config", "status"),
    [
        ("0.85", {}, "ok"),
        ("0.86", {}, "warn"),
        ("0.91", {}, "fail"),
        ("0.5", {"diskSpaceWarningLevelRatio": "40"}, "fail"),
        ("0.5", {"diskSpaceCleanForciblyRatio": "40"}, "warn"),
        ("0.91", {"diskSpaceWarningLevelRatio": "99"}, "fail"),
        ("unknown", {}, "warn"),
    ],
)
def test_a_disk_near_the_limits_of_the_broker_is_reported(used: str, config: dict[str, str], status: str) -> None:
    """Above the first limit unexpired messages are deleted, above the second messages are refused."""
    reported = _broker_status(commitLogDiskRatio=used, consumeQueueDiskRatio="0.1")._replace(config=config)

    assert check_disk("broker-a", reported).status == status


def _settings(**changes: str) -> Mapping[str, str]:
    return _statuses(list(check_broker_settings("b", SOUND | changes, 4 * MIB)))


def test_suitable_settings_are_one_line() -> None:
    """The output is short if nothing is wrong, but always shows the retention."""
    assert _settings() == {"b: settings": "ok", "b: retention": "ok", "b: pulls": "ok"}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("maxMessageSize", "1048576"),
        ("autoCreateTopicEnable", "true"),
        ("messageIndexEnable", "false"),
        ("brokerPermission", "4"),
    ],
)
def test_each_unsuitable_setting_has_its_own_line(setting: str, value: str) -> None:
    """The line has the name of the setting in broker.conf."""
    assert _settings(**{setting: value})[f"b: {setting}"] == "warn"


@pytest.mark.parametrize(
    ("error", "has_user", "words"),
    [
        (Refused(16, "username cannot be null.", "a:1"), False, "set [rocketmq] access_key"),
        (Refused(16, "check signature failed.", "a:1"), True, "refused the user"),
        (Refused(1, "org.apache.rocketmq.acl.common.AclException: No accessKey", "a:1"), True, "refused the user"),
        (Refused(3, "request type 351 not supported", "a:1"), True, "351"),
        (NotSent("10.0.0.1:10911 cannot be reached"), True, "brokerIP1"),
    ],
)
def test_the_reason_of_a_refused_access_is_reported(error: RocketMQError, has_user: bool, words: str) -> None:
    """No user, a wrong user and an unreachable address have different remedies."""
    check = check_access("broker-a", error, has_user=has_user)

    assert check.status == "fail"
    assert words in check.detail
