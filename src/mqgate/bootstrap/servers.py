"""Clients of the servers behind a gateway, for commands that inspect them without a gateway."""

from typing import TYPE_CHECKING

from mqgate.settings import RedisSettings, RocketMQSettings, SettingsInvalid

if TYPE_CHECKING:
    from mqgate.adapters.redis.report import RedisReport
    from mqgate.rocketmq.client import RocketMQClient

__all__ = ["redis_health", "rocketmq_client"]


def rocketmq_client(settings: RocketMQSettings) -> "RocketMQClient":
    """Return a client of the RocketMQ cluster, for commands that inspect it without a gateway."""
    from mqgate.adapters.rocketmq.client_factory import client_of  # noqa: PLC0415 - the embedded engine needs none

    return client_of(settings)


async def redis_health(settings: RedisSettings) -> "RedisReport":
    """Return a report of Redis, for commands without a gateway. Raise if Redis cannot be reached."""
    try:
        from mqgate.adapters.redis.report import redis_report  # noqa: PLC0415 - what it needs is an extra
    except ModuleNotFoundError as error:
        raise SettingsInvalid(['[leases] engine: pip install "mqgate[redis]"']) from error
    return await redis_report(settings.url, settings.prefix, max_wait=settings.timeout.total_seconds())
