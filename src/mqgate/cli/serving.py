"""One process that serves the gateway, alone or as a worker of a supervisor."""

import asyncio
import gc
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog
import uvloop

from mqgate import bootstrap
from mqgate.cli.worker import WorkerContext
from mqgate.cli.worker_metrics import WorkerMetrics
from mqgate.http.server.listening import listen
from mqgate.http.server.server import HttpServer
from mqgate.settings import Settings

__all__ = ["run"]

# File descriptors that a process needs besides client connections: stores, brokers, logs.
_OTHER_FILES = 512
_log = structlog.get_logger()


def run(settings: Settings, worker: WorkerContext | None, *, demo: bool, greet: Callable[[int, bool], None]) -> None:
    """Serve until a signal or the supervisor stops the process.

    Without a supervisor, open a socket and call `greet` with its port and whether the demo can be used without a key.
    """
    # Modules are never freed. Frozen, they do not slow down the collection below.
    gc.freeze()
    # Halves the maximum lag of the event loop beside a busy writing thread.
    sys.setswitchinterval(0.0005)
    if worker is not None:
        structlog.contextvars.bind_contextvars(worker=worker.number)
        # Each worker records its own events, so that the loss of one can be attributed.
        name = f"{bootstrap.gateway_name(settings)}-{worker.number}"
        settings = replace(settings, events=replace(settings.events, gateway=name))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, worker, demo=demo, greet=greet))


async def _serve(
    settings: Settings, worker: WorkerContext | None, *, demo: bool, greet: Callable[[int, bool], None]
) -> None:
    async with bootstrap.gateway(settings) as gateway:
        has_demo = demo and await bootstrap.demo(gateway.registry) and gateway.access.is_open
        (listener,) = (worker.listener,) if worker else listen(settings.http.host, settings.http.port, 1)
        port = listener.getsockname()[1]

        def stopping() -> None:
            gateway.health.is_stopping = True
            gateway.long_poll.stop()

        server = HttpServer(
            gateway.app,
            replace(settings.http, max_connections=_allowed_connections(settings.http.max_connections)),
            started=worker.report_serving if worker else lambda: greet(port, has_demo),
            stopping=stopping,
            count_closed=lambda reason: gateway.metrics.connections_closed.labels(reason).inc(),
        )
        gateway.metrics.connections.set_function(lambda: len(server.connections))
        if worker is not None:
            own = WorkerMetrics(worker.directory, worker.number, partial(gateway.metrics.render, worker.number))
            await own.start()
            gateway.health.render_metrics = own.render_all
            worker.follow(server)
        # Start-up objects are never freed. A full collection that visits them pauses 0.3 s with many parked requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 50, 100)
        await server.serve(listener)


def _allowed_connections(wanted: int) -> int:
    """Raise the limit of open files to what `max_connections` needs; return how many connections it allows."""
    needed = wanted + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        # A sandbox may deny it, and macOS rejects values above the kernel limit.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft < needed:
        allowed = max(soft - _OTHER_FILES, 1)
        _log.warning("connection limit lowered to the limit of open files", wanted=wanted, allowed=allowed)
        return allowed
    return wanted
