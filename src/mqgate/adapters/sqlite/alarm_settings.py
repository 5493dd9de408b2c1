"""AlarmSettingsStore on the embedded engine: settings as JSON."""

import msgspec

from mqgate.adapters.sqlite.engine import Engine, queries
from mqgate.core.alarms import AlarmSettings, Channel, RuleOverride, Silence
from mqgate.ports.alarm_settings import AlarmSetting

__all__ = ["SqliteAlarmSettings"]

_SQL = queries("alarms")
_KINDS: dict[type[AlarmSetting], str] = {RuleOverride: "override", Silence: "silence", Channel: "channel"}


class SqliteAlarmSettings:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def load(self) -> AlarmSettings:
        rows = await self._engine.read(lambda view: view.all(_SQL["settings"]))

        def found(kind: type[AlarmSetting]) -> dict[str, AlarmSetting]:
            settings = (msgspec.json.decode(entry, type=kind) for name, entry in rows if name == _KINDS[kind])
            return {setting.name: setting for setting in settings}

        return AlarmSettings(overrides=found(RuleOverride), silences=found(Silence), channels=found(Channel))  # type: ignore[arg-type]

    async def save(self, setting: AlarmSetting) -> None:
        values = (_KINDS[type(setting)], setting.name, msgspec.json.encode(setting))
        await self._engine.write(lambda tx: tx.execute(_SQL["save_setting"], values))

    async def remove(self, setting: AlarmSetting) -> None:
        values = (_KINDS[type(setting)], setting.name)
        await self._engine.write(lambda tx: tx.execute(_SQL["remove_setting"], values))
