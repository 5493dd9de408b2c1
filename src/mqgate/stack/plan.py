"""The planned parts of a stack: ports, files and command lines. This module starts no process."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from mqgate.stack.broker_spec import BrokerSpec
from mqgate.stack.errors import PartFailed, StackError
from mqgate.stack.jars import jars
from mqgate.stack.java import find_java
from mqgate.stack.part import Part
from mqgate.stack.postgres_part import postgres
from mqgate.stack.redis_part import redis
from mqgate.stack.rocketmq_parts import BROKER_PORTS, RocketMq

__all__ = ["NAME_SERVER", "Extra", "StackPlan"]

Extra = Literal["proxy", "redis", "postgres"]
NAME_SERVER = "namesrv"
_EXTRAS = ("proxy", "redis", "postgres")


class StackPlan:
    """The parts of a stack: the requested ones, and those that its directory already has."""

    def __init__(self, brokers: Sequence[BrokerSpec], extras: Sequence[Extra], known: Mapping[str, Part]) -> None:
        before = {name: BrokerSpec.recorded(part.asked) for name, part in known.items() if part.kind == "broker"}
        self._brokers = before | {spec.name: spec for spec in brokers}
        self._extras = [name for name in _EXTRAS if name in extras or name in known]
        reserved = {NAME_SERVER, *_EXTRAS} & self._brokers.keys()
        if reserved or ("proxy" in self._extras and not self._brokers):
            raise StackError("a proxy requires brokers, and a broker must not have the name of another part")

    def parts(
        self,
        directory: Path,
        alive: Mapping[str, Part],
        choose: Callable[[str, Sequence[int]], int],
        progress: Callable[[str], None],
    ) -> dict[str, Part]:
        """Return all parts in start order. Running parts are kept. Raise PartFailed if a running broker differs."""
        parts: dict[str, Part] = {}

        def add(name: str, make: Callable[[Path, int], Part], *others: int) -> None:
            parts[name] = alive.get(name) or make(directory / name, choose(name, others))

        if self._brokers:
            rocketmq = RocketMq(find_java(), jars(progress=progress))
            add(NAME_SERVER, rocketmq.name_server)
            address = parts[NAME_SERVER].address
            for name, spec in self._brokers.items():
                if name in alive and BrokerSpec.recorded(alive[name].asked) != spec:
                    raise PartFailed(f"{name} runs with other settings: stop the stack first")
                add(name, partial(rocketmq.broker, spec=spec, name_server=address), *BROKER_PORTS)
            if "proxy" in self._extras:
                cluster = next(iter(self._brokers.values())).cluster
                add("proxy", partial(rocketmq.proxy, cluster=cluster, name_server=address), +1)
        if "redis" in self._extras:
            add("redis", redis)
        if "postgres" in self._extras:
            add("postgres", postgres)
        return parts
