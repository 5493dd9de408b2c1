"""What to make of the name servers and of the brokers that they know; no server is asked here."""

import re
from collections.abc import Iterator, Mapping, Sequence

from mqgate.cli.check import Check
from mqgate.rocketmq.errors import RocketMQError
from mqgate.rocketmq.routes import Broker

__all__ = ["brokers_of", "check_cluster", "check_name_servers", "check_version", "check_versions"]

_OLDEST, _TESTED = (4, 9), (5, 0)


def check_name_servers(told: Mapping[str, Sequence[Broker] | RocketMQError]) -> Iterator[Check]:
    """Each answers, and all of them tell of the same brokers: they do not talk to each other."""
    everybody = {each for brokers in told.values() if not isinstance(brokers, RocketMQError) for each in brokers}
    for address, brokers in told.items():
        check = f"name server {address}"
        if isinstance(brokers, RocketMQError):
            yield Check(check=check, status="fail", detail=str(brokers))
            continue
        missing = sorted({each.name for each in everybody - set(brokers)})
        if missing:
            yield Check(check=check, status="warn", detail=f"other name servers know better of {', '.join(missing)}")
        else:
            yield Check(check=check, status="ok", detail=f"answers, and knows {len(brokers)} brokers")


def brokers_of(brokers: Sequence[Broker], cluster: str) -> list[Broker]:
    """Those of the cluster that the gateway would use; none if it could not tell which."""
    if not cluster and len({each.cluster for each in brokers}) > 1:
        return []
    return [each for each in brokers if cluster in {"", each.cluster}]


def check_cluster(brokers: Sequence[Broker], cluster: str) -> Iterator[Check]:
    """Whether there is exactly one cluster to use, and a master to each of its brokers."""
    clusters = ", ".join(sorted({each.cluster for each in brokers})) or "none at all"
    ours = brokers_of(brokers, cluster)
    masters = [each for each in ours if each.master is not None]
    if not cluster and brokers and not ours:
        detail = f"there are several: set [rocketmq] cluster to one of {clusters}"
        yield Check(check="cluster", status="fail", detail=detail)
    elif not ours:
        detail = f"no broker of {cluster or 'any cluster'} is registered; registered clusters: {clusters}"
        yield Check(check="cluster", status="fail", detail=detail)
    elif not masters:
        detail = f"{ours[0].cluster} has no master now: nothing can be stored"
        yield Check(check="cluster", status="fail", detail=detail)
    else:
        names = ", ".join(each.name for each in masters)
        yield Check(check="cluster", status="ok", detail=f"{ours[0].cluster}, with the masters {names}")
    for each in ours:
        if each.master is None and masters:
            detail = "has no master: its queues are closed, and keys that hash to them are refused"
            yield Check(check=f"{each.name}: reachable", status="warn", detail=detail)


def check_version(broker: str, text: str) -> Check:
    """Whether a broker such as V5_5_0 is new enough."""
    check = f"{broker}: version"
    found = re.match(r"V(\d+)_(\d+)", text)
    if found is None:
        return Check(check=check, status="warn", detail=f"unknown version {text or '(none told)'}")
    version = int(found[1]), int(found[2])
    spoken = text.removeprefix("V").replace("_", ".")
    if version < _OLDEST:
        return Check(check=check, status="fail", detail=f"{spoken} is too old: 5.0 or newer is needed")
    if version < _TESTED:
        return Check(check=check, status="warn", detail=f"{spoken} lacks requests that the gateway makes; 5.0 has them")
    return Check(check=check, status="ok", detail=spoken)


def check_versions(versions: Mapping[str, str]) -> Iterator[Check]:
    """A cluster in the middle of an upgrade behaves like neither version."""
    if len(set(versions.values())) > 1:
        detail = ", ".join(f"{broker} is {version}" for broker, version in sorted(versions.items()))
        yield Check(check="versions", status="warn", detail=f"brokers differ: {detail}")
