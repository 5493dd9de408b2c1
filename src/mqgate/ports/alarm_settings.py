"""Storage of what operators set for alarms: thresholds, silences and channels."""

from typing import Protocol

from mqgate.core.alarms import AlarmSettings, Channel, RuleOverride, Silence

__all__ = ["AlarmSetting", "AlarmSettingsStore"]

AlarmSetting = RuleOverride | Silence | Channel


class AlarmSettingsStore(Protocol):
    """A durable store of alarm settings. Names are unique for each type."""

    async def load(self) -> AlarmSettings:
        """Return all settings as one consistent snapshot."""

    async def save(self, setting: AlarmSetting) -> None:
        """Add or replace a setting. The call may be repeated."""

    async def remove(self, setting: AlarmSetting) -> None:
        """Delete a setting. One that does not exist is ignored."""
