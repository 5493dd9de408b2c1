"""Credentials of a control store without a gateway, for commands that create the first ones."""

import contextlib
from collections.abc import AsyncIterator

from mqgate.bootstrap.access import build_access
from mqgate.control.access.service import Credentials
from mqgate.control.registry.directory import CachedDirectory
from mqgate.engines import open_control, open_engine
from mqgate.settings import Settings

__all__ = ["local_credentials"]


@contextlib.asynccontextmanager
async def local_credentials(settings: Settings) -> AsyncIterator[Credentials]:
    """Open the configured control store. Raise StorageUnavailable if a gateway holds the data directory."""
    engine = open_engine(settings, None) if settings.control.engine == "sqlite" else None
    try:
        async with open_control(settings, engine, None) as control:
            directory = CachedDirectory(control.registry)

            async def catch_up() -> None:
                await directory.refresh()

            _, credentials = build_access(settings, control, directory, catch_up)
            yield credentials
    finally:
        if engine is not None:
            await engine.close()
