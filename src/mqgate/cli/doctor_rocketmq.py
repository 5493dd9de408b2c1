"""What `mqgate doctor` asks RocketMQ: every name server, then every broker of the cluster, with the gateway's user."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mqgate import bootstrap
from mqgate.cli.check import Check
from mqgate.cli.judge_broker import (
    Told,
    judge_access,
    judge_broker_clock,
    judge_broker_settings,
    judge_disk,
    judge_durability,
)
from mqgate.cli.judge_cluster import brokers_of, judge_cluster, judge_name_servers, judge_version, judge_versions
from mqgate.rocketmq import RocketMQClient, RocketMQError
from mqgate.rocketmq.routes import Broker
from mqgate.settings import RocketMQSettings, Settings

__all__ = ["examine"]


async def examine(settings: Settings) -> list[Check]:
    """Look at the cluster that the settings name; SettingsInvalid if a TLS file is no good."""
    rocketmq = settings.rocketmq
    answers = await asyncio.gather(*(_name_server(rocketmq, address) for address in rocketmq.name_servers))
    told = dict(zip(rocketmq.name_servers, answers, strict=True))
    checks = list(judge_name_servers(told))
    known = {each.name: each for found in answers if not isinstance(found, RocketMQError) for each in found}
    if all(isinstance(answer, RocketMQError) for answer in answers):
        return checks
    brokers = [known[name] for name in sorted(known)]
    checks += judge_cluster(brokers, rocketmq.cluster)
    masters = [each for each in brokers_of(brokers, rocketmq.cluster) if each.master is not None]
    client = bootstrap.rocketmq_client(rocketmq)
    try:
        return checks + await _brokers(client, masters, settings)
    finally:
        await client.close()


async def _name_server(settings: RocketMQSettings, address: str) -> Sequence[Broker] | RocketMQError:
    """What this one knows; each is asked alone, since the gateway may have to live with any of them."""
    client = bootstrap.rocketmq_client(replace(settings, name_servers=(address,)))
    try:
        return await client.routes.brokers()
    except RocketMQError as error:
        return error
    finally:
        await client.close()


async def _brokers(client: RocketMQClient, masters: Sequence[Broker], settings: Settings) -> list[Check]:
    client.routes.masters.update({each.name: each.master for each in masters if each.master is not None})
    told = await asyncio.gather(*(_broker(client, each.name, settings.rocketmq) for each in masters))
    checks: list[Check] = []
    versions: dict[str, str] = {}
    for broker, found in zip(masters, told, strict=True):
        if isinstance(found, RocketMQError):
            has_user = bool(settings.rocketmq.access_key)
            checks.append(judge_access(broker.name, found, has_user=has_user))
        else:
            versions[broker.name] = found.runtime.get("brokerVersionDesc", "")
            checks += _judge(broker, found, settings.http.max_message_bytes)
    return [*checks, *judge_versions(versions)]


async def _broker(client: RocketMQClient, broker: str, settings: RocketMQSettings) -> Told | RocketMQError:
    try:
        config = await client.admin.config(broker)
        asked_at = time.time()
        runtime = await client.admin.runtime(broker)
        answered_at = time.time()
        # Access control goes by names: what /readyz asks, and what the gateway first asks about a topic of its own.
        await client.offsets.max(broker, "TBW102", 0)
        prefix = f"{settings.namespace}%" if settings.namespace else ""
        await client.admin.topic(broker, f"{prefix}mqgate_doctor")
    except RocketMQError as error:
        return error
    return Told(runtime, asked_at, answered_at, config)


def _judge(broker: Broker, told: Told, max_message_bytes: int) -> Iterator[Check]:
    yield Check(check=f"{broker.name}: reachable", status="ok", detail=f"{broker.master} answers, and lets us in")
    yield judge_version(broker.name, told.runtime.get("brokerVersionDesc", ""))
    yield judge_broker_clock(broker.name, told)
    yield judge_durability(broker.name, told.config)
    yield judge_disk(broker.name, told)
    yield from judge_broker_settings(broker.name, told.config, max_message_bytes)
