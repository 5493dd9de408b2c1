"""`mqgate serve`: the gateway in the foreground."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import uvicorn
import uvloop

from mqgate import bootstrap
from mqgate.cli.output import examples
from mqgate.core.errors import MqgateError
from mqgate.settings import Settings, SettingsInvalid
from mqgate.telemetry import logs

_BACKLOG = 2048


@click.command(epilog=examples("mqgate serve --demo --port 8080 --data-dir ./data"))
@click.option("--config", type=click.Path(path_type=Path), envvar="MQGATE_CONFIG", help="mqgate.toml to read.")
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.")
@click.option("--data-dir", help="Data directory of the embedded engine.")
@click.option("--demo", is_flag=True, help="Register a demo topic, producer and groups in an empty registry.")
def serve(config: Path | None, host: str | None, port: int | None, data_dir: str | None, demo: bool) -> None:
    """Serve the gateway until it is told to stop (Ctrl-C or SIGTERM)."""
    flags: dict[str, Any] = {"http.host": host, "http.port": port, "sqlite.directory": data_dir}
    if config is None and Path("mqgate.toml").exists():
        config = Path("mqgate.toml")
    try:
        settings = Settings.load(config, flags={name: value for name, value in flags.items() if value is not None})
        logs.configure(settings.log.level, settings.log.format)
        # Half the loop's worst lag beside a busy writing thread.
        sys.setswitchinterval(0.0005)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, demo=demo))
    except SettingsInvalid as error:
        for fault in error.faults:
            click.echo(f"error: {fault}", err=True)
        sys.exit(2)
    except (MqgateError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


async def _serve(settings: Settings, *, demo: bool) -> None:
    async with bootstrap.gateway(settings) as gateway:
        if demo:
            await bootstrap.demo(gateway.registry)
        listener = _listen(settings.http.host, settings.http.port)
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            gateway.app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(settings.http.stop_timeout),
            backlog=_BACKLOG,
        )
        # Start-up objects live for ever: a full collection that walks them pauses 0.3 s with many parked requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 50, 100)
        _greet(f"http://{f'[{host}]' if ':' in host else host}:{port}", demo=demo)
        await _Server(config, gateway).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Uvicorn, stopped by signals without being killed by them: what was opened around it is closed after it."""

    def __init__(self, config: uvicorn.Config, gateway: bootstrap.Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own would raise the signal again at the end."""
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._stop, sign)
        try:
            yield
        finally:
            for sign in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(sign)

    def _stop(self, sign: int) -> None:
        """Not ready any more; answer those who wait; finish what runs. A second Ctrl-C does not wait."""
        self._gateway.health.is_stopping = True
        self._gateway.long_poll.stop()
        self.handle_exit(sign, None)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port") from error
    listener.setblocking(False)
    return listener


def _greet(url: str, *, demo: bool) -> None:
    click.echo(f"mqgate listens on {url}  (docs: {url}/docs, stop: Ctrl-C)")
    if demo:
        click.echo(
            "\nTry it:\n"
            f"  curl -d hello {url}/v1/topics/demo/messages\n"
            f"  curl -X POST {url}/v1/groups/demo-workers/receive\n"
            f"  curl {url}/v1/groups/demo-workers/lag\n"
        )
    sys.stdout.flush()
