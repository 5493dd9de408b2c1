"""`mqgate serve`: the gateway in the foreground, as one process or as several under a supervisor."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import structlog

from mqgate.cli.config_option import config_option
from mqgate.cli.output import examples
from mqgate.cli.supervisor import Supervisor
from mqgate.core.errors import MqgateError
from mqgate.http.server.listening import listen
from mqgate.settings import HttpSettings, Settings, SettingsInvalid
from mqgate.telemetry import logs

# -P: a file in the working directory must not be imported as a module.
_MQGATE = (sys.executable, "-P", "-m", "mqgate.cli.main")
_SETTINGS = {"host": "http.host", "port": "http.port", "workers": "http.workers", "data_dir": "sqlite.directory"}
_log = structlog.get_logger()


@click.command(epilog=examples("mqgate serve --demo --port 8080 --data-dir ./data"))
@config_option()
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on; 0 selects a free port.")
@click.option("--workers", type=int, help="Number of serving processes; more than 1 requires external engines.")
@click.option("--data-dir", help="Data directory of the embedded engine.")
@click.option("--demo", is_flag=True, help="Register a demo topic, producer and groups in an empty registry.")
@click.option("--worker", "worker", hidden=True, help="Context that a supervisor passes to its worker.")
def serve(config: Path | None, demo: bool, worker: str | None, **given: Any) -> None:
    """Serve the gateway until Ctrl-C or SIGTERM. With several workers, SIGHUP replaces them one by one."""
    options = {name: value for name, value in given.items() if value is not None}
    flags = {_SETTINGS[name]: value for name, value in options.items()}
    try:
        settings = Settings.load(config, flags=flags)
        logs.configure(settings.logging.level, settings.logging.format)
        if worker is None:
            for note in settings.deprecations:
                _log.warning("deprecated setting found", detail=note)
        if worker is None and settings.http.workers > 1:
            arguments = {"config": config, **options} if config else options
            sys.exit(_supervise(settings.http, arguments, demo=demo))
        _serve(settings, worker, demo=demo)
    except SettingsInvalid as error:
        for fault in error.faults:
            click.echo(f"error: {fault}", err=True)
        sys.exit(2)
    except (MqgateError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def _serve(settings: Settings, worker: str | None, *, demo: bool) -> None:
    # These import the whole gateway, which a supervisor does not need.
    from mqgate.cli.serving import run  # noqa: PLC0415
    from mqgate.cli.worker import WorkerContext  # noqa: PLC0415

    run(
        settings,
        WorkerContext.parse(worker) if worker else None,
        demo=demo,
        greet=lambda port, has_demo: _greet(settings.http.host, port, demo=has_demo),
    )


def _supervise(settings: HttpSettings, arguments: dict[str, Any], *, demo: bool) -> int:
    command = [*_MQGATE, "serve", *(["--demo"] if demo else [])]
    for name, value in arguments.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    listeners = listen(settings.host, settings.port, settings.workers)
    port = listeners[0].getsockname()[1]

    async def supervise() -> int:
        return await Supervisor(
            command,
            listeners,
            stop_timeout=settings.stop_timeout.total_seconds(),
            serving=lambda: _greet(settings.host, port, demo=demo),
        ).run()

    return asyncio.run(supervise())


def _greet(host: str, port: int, *, demo: bool) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    click.echo(f"mqgate listens on {url}  (docs: {url}/docs, stop: Ctrl-C)")
    if demo:
        click.echo(
            "\nTry it:\n"
            f"  curl -d hello {url}/v1/topics/demo/messages\n"
            f"  curl -X POST {url}/v1/groups/demo-workers/receive\n"
            f"  curl {url}/v1/groups/demo-workers/lag\n"
        )
    sys.stdout.flush()
