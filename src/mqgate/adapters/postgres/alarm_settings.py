"""AlarmSettingsStore in PostgreSQL: settings as JSON."""

import msgspec

from mqgate.adapters.postgres.database import Database, queries
from mqgate.core.alarms import AlarmSettings, Channel, RuleOverride, Silence
from mqgate.ports.alarm_settings import AlarmSetting

__all__ = ["PostgresAlarmSettings"]

_SQL = queries("alarms")
_KINDS: dict[type[AlarmSetting], str] = {RuleOverride: "override", Silence: "silence", Channel: "channel"}


class PostgresAlarmSettings:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> AlarmSettings:
        rows = await self._database.read(_SQL["settings"])

        def found(kind: type[AlarmSetting]) -> dict[str, AlarmSetting]:
            settings = (msgspec.json.decode(entry, type=kind) for name, entry in rows if name == _KINDS[kind])
            return {setting.name: setting for setting in settings}

        return AlarmSettings(overrides=found(RuleOverride), silences=found(Silence), channels=found(Channel))  # type: ignore[arg-type]

    async def save(self, setting: AlarmSetting) -> None:
        values = {**_key(setting), "entry": msgspec.json.encode(setting).decode()}
        await self._database.write(_SQL["save_setting"], values, is_repeatable=True)

    async def remove(self, setting: AlarmSetting) -> None:
        await self._database.write(_SQL["remove_setting"], _key(setting), is_repeatable=True)


def _key(setting: AlarmSetting) -> dict[str, str]:
    return {"kind": _KINDS[type(setting)], "name": setting.name}
