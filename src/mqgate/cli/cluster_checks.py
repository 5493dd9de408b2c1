"""Checks of the name servers and their broker lists. Pure functions without I/O."""

import re
from collections.abc import Iterator, Mapping, Sequence

from mqgate.cli.check import Check
from mqgate.rocketmq.errors import RocketMQError
from mqgate.rocketmq.routes import Broker

__all__ = ["brokers_of", "check_cluster", "check_name_servers", "check_version", "check_versions"]

_OLDEST, _TESTED = (4, 9), (5, 0)


def check_name_servers(found: Mapping[str, Sequence[Broker] | RocketMQError]) -> Iterator[Check]:
    """Check that every name server responds with the same brokers. Name servers do not synchronise."""
    all_brokers = {broker for brokers in found.values() if not isinstance(brokers, RocketMQError) for broker in brokers}
    for address, brokers in found.items():
        check = f"name server {address}"
        if isinstance(brokers, RocketMQError):
            yield Check(check=check, status="fail", detail=str(brokers))
            continue
        missing = sorted({broker.name for broker in all_brokers - set(brokers)})
        if missing:
            yield Check(
                check=check, status="warn", detail=f"other name servers have different entries for {', '.join(missing)}"
            )
        else:
            yield Check(check=check, status="ok", detail=f"responds, and knows {len(brokers)} brokers")


def brokers_of(brokers: Sequence[Broker], cluster: str) -> list[Broker]:
    """Return the brokers of the cluster that the gateway uses, or none if the cluster is ambiguous."""
    if not cluster and len({broker.cluster for broker in brokers}) > 1:
        return []
    return [broker for broker in brokers if cluster in {"", broker.cluster}]


def check_cluster(brokers: Sequence[Broker], cluster: str) -> Iterator[Check]:
    """Check that there is exactly one cluster to use, and that each of its brokers has a master."""
    clusters = ", ".join(sorted({broker.cluster for broker in brokers})) or "none"
    ours = brokers_of(brokers, cluster)
    masters = [broker for broker in ours if broker.master is not None]
    if not cluster and brokers and not ours:
        detail = f"there are several clusters: set [rocketmq] cluster to one of {clusters}"
        yield Check(check="cluster", status="fail", detail=detail)
    elif not ours:
        detail = f"no broker of {cluster or 'any cluster'} is registered; registered clusters: {clusters}"
        yield Check(check="cluster", status="fail", detail=detail)
    elif not masters:
        detail = f"{ours[0].cluster} has no master: no message can be stored"
        yield Check(check="cluster", status="fail", detail=detail)
    else:
        names = ", ".join(broker.name for broker in masters)
        yield Check(check="cluster", status="ok", detail=f"{ours[0].cluster}, masters: {names}")
    for broker in ours:
        if broker.master is None and masters:
            detail = "has no master: its queues are closed, and messages whose keys map to them are refused"
            yield Check(check=f"{broker.name}: reachable", status="warn", detail=detail)


def check_version(broker: str, text: str) -> Check:
    """Check the version of a broker, such as V5_5_0."""
    check = f"{broker}: version"
    found = re.match(r"V(\d+)_(\d+)", text)
    if found is None:
        return Check(check=check, status="warn", detail=f"unknown version {text or '(not reported)'}")
    version = int(found[1]), int(found[2])
    version_text = text.removeprefix("V").replace("_", ".")
    if version < _OLDEST:
        return Check(check=check, status="fail", detail=f"{version_text} is too old: 5.0 or newer is required")
    if version < _TESTED:
        return Check(
            check=check,
            status="warn",
            detail=f"{version_text} does not support all requests of the gateway; upgrade to 5.0 or newer",
        )
    return Check(check=check, status="ok", detail=version_text)


def check_versions(versions: Mapping[str, str]) -> Iterator[Check]:
    """Warn of different versions. A cluster during an upgrade behaves like neither version."""
    if len(set(versions.values())) > 1:
        detail = ", ".join(f"{broker} is {version}" for broker, version in sorted(versions.items()))
        yield Check(check="versions", status="warn", detail=f"brokers have different versions: {detail}")
