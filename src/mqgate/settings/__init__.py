"""Every option: its type, its default and its purpose. A package receives its group, never the tree."""

from mqgate.settings.access import AdminSettings, ApprovalSettings, SessionSettings
from mqgate.settings.http import HttpSettings, MqSettings
from mqgate.settings.messaging import GroupSettings, PublishSettings, TopicSettings
from mqgate.settings.observability import (
    AlarmsSettings,
    EventsSettings,
    LoggingSettings,
    PipelineSettings,
    StatsSettings,
)
from mqgate.settings.option import SettingsInvalid
from mqgate.settings.stores import (
    ControlSettings,
    LeaseSettings,
    MessageSettings,
    PostgresSettings,
    RedisSettings,
    RocketMQSettings,
    SqliteSettings,
)
from mqgate.settings.tree import Settings, option_groups

__all__ = [
    "AdminSettings",
    "AlarmsSettings",
    "ApprovalSettings",
    "ControlSettings",
    "EventsSettings",
    "GroupSettings",
    "HttpSettings",
    "LeaseSettings",
    "LoggingSettings",
    "MessageSettings",
    "MqSettings",
    "PipelineSettings",
    "PostgresSettings",
    "PublishSettings",
    "RedisSettings",
    "RocketMQSettings",
    "SessionSettings",
    "Settings",
    "SettingsInvalid",
    "SqliteSettings",
    "StatsSettings",
    "TopicSettings",
    "option_groups",
]
