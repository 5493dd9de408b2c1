"""Assembles the gateway. Only this package and engines.py name concrete adapters."""

from mqgate.bootstrap.demo import demo
from mqgate.bootstrap.gateway import Gateway, gateway, gateway_name, refuse_open_door
from mqgate.bootstrap.local import local_credentials
from mqgate.bootstrap.servers import redis_health, rocketmq_client

__all__ = [
    "Gateway",
    "demo",
    "gateway",
    "gateway_name",
    "local_credentials",
    "redis_health",
    "refuse_open_door",
    "rocketmq_client",
]
