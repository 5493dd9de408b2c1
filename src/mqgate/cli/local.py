"""The option --local: a command writes to the control store itself, before a gateway runs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mqgate.cli.config_option import config_option
from mqgate.core.errors import MqgateError, StorageUnavailable
from mqgate.settings import Settings, SettingsInvalid

if TYPE_CHECKING:
    from mqgate.control.access.service import Credentials

__all__ = ["LOCAL_ACTOR", "run_locally", "with_local"]

LOCAL_ACTOR = "local command"
_T = TypeVar("_T")


def with_local(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --local, --config and --data-dir. Pass `local`: the settings of the control store, or None."""
    options = (
        click.option(
            "--local",
            "is_local",
            is_flag=True,
            help="Write to the control store of the settings instead of calling a gateway. With the embedded engine, "
            "no gateway may hold the data directory.",
        ),
        config_option("mqgate.toml to read with --local."),
        click.option("--data-dir", help="Data directory of the embedded engine, with --local."),
    )

    def wrapped(*args: Any, is_local: bool, config: Path | None, data_dir: str | None, **given: Any) -> Any:
        if data_dir is not None and not is_local:
            raise click.UsageError("--data-dir requires --local")
        return command(*args, local=_settings(config, data_dir) if is_local else None, **given)

    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]  # of click
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def run_locally(settings: Settings, work: Callable[["Credentials"], Awaitable[_T]]) -> _T:
    """Run `work` on the credentials of the control store. Raise ClickException for an error that it reports."""
    from mqgate import bootstrap  # noqa: PLC0415 - imports the whole gateway

    async def run() -> _T:
        async with bootstrap.local_credentials(settings) as credentials:
            return await work(credentials)

    try:
        return asyncio.run(run())
    except SettingsInvalid as error:
        raise click.UsageError(str(error)) from error
    except StorageUnavailable as error:
        raise click.ClickException(f"{error.detail}; omit --local to call a running gateway ({error.code})") from error
    except MqgateError as error:
        raise click.ClickException(f"{error.detail} ({error.code})") from error


def _settings(config: Path | None, data_dir: str | None) -> Settings:
    try:
        return Settings.load(config, flags={} if data_dir is None else {"sqlite.directory": data_dir})
    except SettingsInvalid as error:
        raise click.UsageError(str(error)) from error
