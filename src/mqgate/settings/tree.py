"""The tree of all options.

Defaults < file (mqgate.toml) < environment (MQGATE_HTTP_PORT) < flags. Unknown names are errors. All faults are
reported together, before any store is opened.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqgate.settings.access import AdminSettings, ApprovalSettings, SessionSettings
from mqgate.settings.checks import check
from mqgate.settings.http import HttpSettings, MqSettings
from mqgate.settings.loader import Loader, groups_of
from mqgate.settings.messaging import GroupSettings, PublishSettings, TopicSettings
from mqgate.settings.observability import (
    AlarmsSettings,
    EventsSettings,
    LoggingSettings,
    PipelineSettings,
    StatsSettings,
)
from mqgate.settings.stores import (
    ControlSettings,
    LeaseSettings,
    MessageSettings,
    PostgresSettings,
    RedisSettings,
    RocketMQSettings,
    SqliteSettings,
)

__all__ = ["Settings", "option_groups"]

# Variables of the client commands.
_NOT_SETTINGS = {"MQGATE_URL", "MQGATE_KEY", "MQGATE_CONFIG"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    http: HttpSettings = field(default_factory=HttpSettings)
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    messages: MessageSettings = field(default_factory=MessageSettings)
    rocketmq: RocketMQSettings = field(default_factory=RocketMQSettings)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    control: ControlSettings = field(default_factory=ControlSettings)
    postgres: PostgresSettings = field(default_factory=PostgresSettings)
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)
    group_defaults: GroupSettings = field(default_factory=GroupSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    events: EventsSettings = field(default_factory=EventsSettings)
    alarms: AlarmsSettings = field(default_factory=AlarmsSettings)
    mq: MqSettings = field(default_factory=MqSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    stats: StatsSettings = field(default_factory=StatsSettings)
    pipelines: PipelineSettings = field(default_factory=PipelineSettings)
    topic: tuple[Mapping[str, Any], ...] = ()
    producer: tuple[Mapping[str, Any], ...] = ()
    group: tuple[Mapping[str, Any], ...] = ()
    # One sentence for each deprecated name in use.
    deprecations: tuple[str, ...] = ()

    @staticmethod
    def load(
        path: Path | None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
    ) -> "Settings":
        """Read all layers, or raise SettingsInvalid with every fault found."""
        loader = Loader(Settings())
        if path is not None:
            loader.read_file(path)
        for name, text in environment.items():
            if name.startswith("MQGATE_") and name not in _NOT_SETTINGS:
                loader.read_variable(name, text)
        for name, value in (flags or {}).items():
            group, _, option_name = name.partition(".")
            loader.set(group, option_name, value, f"flag {name}")
        return loader.finish(check)


def option_groups() -> Mapping[str, Any]:
    """Return the option groups by their name in the file."""
    return groups_of(Settings)
