"""Checks of `mqgate doctor` for RocketMQ: every name server, then every broker, with the user of the gateway."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mqgate import bootstrap
from mqgate.cli.broker_checks import (
    BrokerStatus,
    check_access,
    check_broker_clock,
    check_broker_settings,
    check_disk,
    check_durability,
)
from mqgate.cli.check import Check
from mqgate.cli.cluster_checks import brokers_of, check_cluster, check_name_servers, check_version, check_versions
from mqgate.rocketmq import RocketMQClient, RocketMQError
from mqgate.rocketmq.routes import Broker
from mqgate.settings import RocketMQSettings, Settings

__all__ = ["run_checks"]


async def run_checks(settings: Settings) -> list[Check]:
    """Check the cluster of the settings. Raise SettingsInvalid if a TLS file is invalid."""
    rocketmq = settings.rocketmq
    results = await asyncio.gather(*(_name_server(rocketmq, address) for address in rocketmq.name_servers))
    checks = list(check_name_servers(dict(zip(rocketmq.name_servers, results, strict=True))))
    known = {broker.name: broker for found in results if not isinstance(found, RocketMQError) for broker in found}
    if all(isinstance(result, RocketMQError) for result in results):
        return checks
    brokers = [known[name] for name in sorted(known)]
    checks += check_cluster(brokers, rocketmq.cluster)
    masters = [broker for broker in brokers_of(brokers, rocketmq.cluster) if broker.master is not None]
    client = bootstrap.rocketmq_client(rocketmq)
    try:
        return checks + await _check_brokers(client, masters, settings)
    finally:
        await client.close()


async def _name_server(settings: RocketMQSettings, address: str) -> Sequence[Broker] | RocketMQError:
    """Return the brokers that one name server knows. The gateway may have to rely on any of them alone."""
    client = bootstrap.rocketmq_client(replace(settings, name_servers=(address,)))
    try:
        return await client.routes.brokers()
    except RocketMQError as error:
        return error
    finally:
        await client.close()


async def _check_brokers(client: RocketMQClient, masters: Sequence[Broker], settings: Settings) -> list[Check]:
    client.routes.masters.update({broker.name: broker.master for broker in masters if broker.master is not None})
    statuses = await asyncio.gather(*(_read_status(client, broker.name, settings.rocketmq) for broker in masters))
    checks: list[Check] = []
    versions: dict[str, str] = {}
    for broker, found in zip(masters, statuses, strict=True):
        if isinstance(found, RocketMQError):
            has_user = bool(settings.rocketmq.access_key)
            checks.append(check_access(broker.name, found, has_user=has_user))
        else:
            versions[broker.name] = found.runtime.get("brokerVersionDesc", "")
            checks += _check_broker(broker, found, settings.http.max_message_bytes)
    return [*checks, *check_versions(versions)]


async def _read_status(client: RocketMQClient, broker: str, settings: RocketMQSettings) -> BrokerStatus | RocketMQError:
    try:
        config = await client.admin.config(broker)
        requested_at = time.time()
        runtime = await client.admin.runtime(broker)
        responded_at = time.time()
        # Access control depends on names: request what /readyz requests, and what the gateway requests for a new topic.
        await client.offsets.max(broker, "TBW102", 0)
        prefix = f"{settings.namespace}%" if settings.namespace else ""
        await client.admin.topic(broker, f"{prefix}mqgate_doctor")
    except RocketMQError as error:
        return error
    return BrokerStatus(runtime, requested_at, responded_at, config)


def _check_broker(broker: Broker, status: BrokerStatus, max_message_bytes: int) -> Iterator[Check]:
    yield Check(
        check=f"{broker.name}: reachable", status="ok", detail=f"{broker.master} responds, and access is granted"
    )
    yield check_version(broker.name, status.runtime.get("brokerVersionDesc", ""))
    yield check_broker_clock(broker.name, status)
    yield check_durability(broker.name, status.config)
    yield check_disk(broker.name, status)
    yield from check_broker_settings(broker.name, status.config, max_message_bytes)
