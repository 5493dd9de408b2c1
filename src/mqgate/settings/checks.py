"""Checks of the values of options, and of their combinations."""

import re
from dataclasses import fields
from datetime import timedelta
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from mqgate.settings.http import HttpSettings
from mqgate.settings.loader import groups_of
from mqgate.settings.observability import EventsSettings
from mqgate.settings.stores import ControlSettings, PostgresSettings

if TYPE_CHECKING:
    from mqgate.settings.tree import Settings

__all__ = ["check"]

_LEVELS = ("debug", "info", "warning", "error")
_CIPHER_KEY_BYTES = 16
# The rows of a few batches.
_MIN_BUFFERED = 10_000
_MIN_ALARM_INTERVAL = timedelta(seconds=1)
_PUBLIC_CIPHER_KEY = "DJs32jslkdghDSDf"


def check(settings: "Settings") -> list[str]:
    """Return all faults of the values and of their combinations."""
    faults = []
    for group in groups_of(type(settings)):
        options = getattr(settings, group)
        faults += [
            f"[{group}] {option.name} must not be negative"
            for option in fields(options)
            if _is_negative(getattr(options, option.name))
        ]
    if settings.sqlite.synchronous not in {"full", "normal"}:
        faults.append("[sqlite] synchronous must be full or normal")
    if settings.logging.level not in _LEVELS:
        faults.append(f"[logging] level must be one of {', '.join(_LEVELS)}")
    if settings.logging.requests not in {"failed", "all"}:
        faults.append("[logging] requests must be failed or all")
    if settings.logging.format not in {"auto", "json", "console"}:
        faults.append("[logging] format must be auto, json or console")
    faults += _check_engines(settings)
    faults += _check_workers(settings)
    faults += _check_events(settings.events)
    if settings.alarms.interval < _MIN_ALARM_INTERVAL:
        faults.append("[alarms] interval must be 1s or more")
    key = settings.mq.cipher_key
    if key and (len(key.encode()) != _CIPHER_KEY_BYTES or key == _PUBLIC_CIPHER_KEY):
        faults.append("[mq] cipher_key must be 16 characters, and must not be the published default key")
    networks = {
        "[mq] anonymous_from": settings.mq.anonymous_from,
        "[http] trusted_proxies": settings.http.trusted_proxies,
    }
    for name, network in ((name, network) for name, listed in networks.items() for network in listed):
        try:
            ip_network(network)
        except ValueError:
            faults.append(f"{name}: {network!r} is not a network such as 10.0.0.0/8")
    faults += _check_http(settings.http)
    faults += [
        f"[sessions] {name} must be more than 0"
        for name in ("idle_timeout", "max_age")
        if not getattr(settings.sessions, name)
    ]
    return faults


def _is_negative(value: Any) -> bool:
    return value < timedelta(0) if isinstance(value, timedelta) else isinstance(value, int) and value < 0


def _check_http(http: HttpSettings) -> list[str]:
    positive = (
        *("max_connections", "max_connections_per_address", "max_header_bytes", "min_rate"),
        *("header_timeout", "body_timeout", "idle_timeout", "stall_timeout"),
    )
    faults = [f"[http] {name} must be more than 0" for name in positive if not getattr(http, name)]
    faults += [
        f"[http] cors_origins: {origin!r} is not an origin such as https://app.example.com"
        for origin in http.cors_origins
        if origin != "*" and not re.fullmatch(r"https?://[^/\s]+/?", origin)
    ]
    return faults


def _check_engines(settings: "Settings") -> list[str]:
    faults = []
    if settings.messages.engine not in {"sqlite", "rocketmq"}:
        faults.append("[messages] engine must be sqlite or rocketmq")
    faults += _check_leases(settings)
    faults += _check_control(settings.control, settings.postgres)
    if settings.stats.engine not in {"sqlite", "postgres"}:
        faults.append("[stats] engine must be sqlite or postgres")
    if settings.stats.engine == "postgres" and settings.control.engine != "postgres" and not settings.postgres.url:
        faults.append("[postgres] url is required: postgresql://user:password@host:5432/database")
    rocketmq = settings.rocketmq
    if settings.messages.engine == "rocketmq" and not rocketmq.name_servers:
        faults.append("[rocketmq] name_servers must contain at least one address: host:port")
    for address in rocketmq.name_servers:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            faults.append(f"[rocketmq] name_servers: {address!r} is not host:port")
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,20}", rocketmq.namespace):
        faults.append("[rocketmq] namespace must be at most 20 characters of A-Z a-z 0-9 _ -")
    if bool(rocketmq.access_key) != bool(rocketmq.secret_key):
        faults.append("[rocketmq] access_key and secret_key must be set together")
    return faults


def _check_events(events: EventsSettings) -> list[str]:
    faults = []
    if not events.queues:
        faults.append("[events] queues must be 1 or more")
    if not events.flush_interval:
        faults.append("[events] flush_interval must be more than 0")
    if events.max_buffered < _MIN_BUFFERED:
        faults.append(f"[events] max_buffered must be {_MIN_BUFFERED} or more")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{0,100}", events.gateway):
        faults.append("[events] gateway must be at most 100 characters of A-Z a-z 0-9 _ . : -")
    return faults


def _check_workers(settings: "Settings") -> list[str]:
    if settings.http.workers < 1:
        return ["[http] workers must be 1 or more"]
    engines = {
        "messages": settings.messages.engine,
        "leases": settings.leases.engine,
        "control": settings.control.engine,
    }
    embedded = [f"[{group}]" for group, engine in engines.items() if engine == "sqlite"]
    if settings.http.workers == 1 or not embedded:
        return []
    return [
        f"[http] workers: the embedded engine supports one process; choose another engine for {', '.join(embedded)}"
    ]


def _check_leases(settings: "Settings") -> list[str]:
    if settings.leases.engine not in {"sqlite", "redis"}:
        return ["[leases] engine must be sqlite or redis"]
    if settings.leases.engine == "sqlite":
        return []
    faults = []
    if settings.messages.engine != "rocketmq":
        # Redis can lose its data. Groups then continue at the consumer offsets of the brokers.
        faults.append(
            "[leases] engine redis requires [messages] engine rocketmq, which keeps a copy of the committed offsets"
        )
    if not settings.redis.url:
        faults.append("[redis] url is required: redis://user:password@host:6379/0")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", settings.redis.prefix):
        faults.append("[redis] prefix must be 1 to 64 characters of A-Z a-z 0-9 _ . : -")
    if not settings.redis.timeout:
        faults.append("[redis] timeout must be more than 0")
    return faults


def _check_control(control: ControlSettings, postgres: PostgresSettings) -> list[str]:
    faults = []
    if control.engine not in {"sqlite", "postgres"}:
        faults.append("[control] engine must be sqlite or postgres")
    if control.engine == "postgres" and not postgres.url:
        faults.append("[postgres] url is required: postgresql://user:password@host:5432/database")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", postgres.schema):
        faults.append("[postgres] schema must be lower-case letters, digits and _")
    if not 1 <= postgres.min_connections <= postgres.max_connections:
        faults.append("[postgres] min_connections must be 1 or more, and at most max_connections")
    return faults
