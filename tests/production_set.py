"""The distributed deployment for one test: shared RocketMQ, Redis and PostgreSQL, under names of the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import psycopg

from mqgate.settings import (
    ControlSettings,
    LeaseSettings,
    MessageSettings,
    PostgresSettings,
    RedisSettings,
    RocketMQSettings,
    Settings,
)
from mqgate.stack import Stack


@contextmanager
def on_production(
    settings: Settings, rocketmq: Stack, redis: Stack, postgres: Stack, cluster: str = "one"
) -> Iterator[Settings]:
    """Yield settings that use all three servers. The PostgreSQL schema is dropped at the end."""
    space = uuid4().hex[:8]
    yield replace(
        settings,
        messages=MessageSettings(engine="rocketmq"),
        rocketmq=RocketMQSettings(name_servers=(rocketmq.name_server,), cluster=cluster, namespace=space),
        leases=LeaseSettings(engine="redis"),
        redis=RedisSettings(url=redis.redis_url, prefix=space, timeout=timedelta(seconds=10)),
        control=ControlSettings(engine="postgres"),
        postgres=PostgresSettings(url=postgres.postgres_url, schema=f"test_{space}"),
    )
    with psycopg.connect(postgres.postgres_url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "test_{space}" CASCADE'.encode())


def as_environment(settings: Settings) -> dict[str, str]:
    """Return the same settings for a gateway in its own process."""
    return {
        "MQGATE_MESSAGES_ENGINE": "rocketmq",
        "MQGATE_ROCKETMQ_NAME_SERVERS": ",".join(settings.rocketmq.name_servers),
        "MQGATE_ROCKETMQ_CLUSTER": settings.rocketmq.cluster,
        "MQGATE_ROCKETMQ_NAMESPACE": settings.rocketmq.namespace,
        "MQGATE_LEASES_ENGINE": "redis",
        "MQGATE_REDIS_URL": settings.redis.url,
        "MQGATE_REDIS_PREFIX": settings.redis.prefix,
        "MQGATE_CONTROL_ENGINE": "postgres",
        "MQGATE_POSTGRES_URL": settings.postgres.url,
        "MQGATE_POSTGRES_SCHEMA": settings.postgres.schema,
    }
