"""One process that serves the gateway: the only one, or a worker in its place under a supervisor."""

import asyncio
import gc
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import structlog
import uvloop

from mqgate import bootstrap
from mqgate.cli.worker import WorkerContext
from mqgate.http.server.listening import listen
from mqgate.http.server.server import HttpServer
from mqgate.settings import Settings

__all__ = ["run"]

# Files that a process needs besides its clients' connections: stores, brokers, logs.
_OTHER_FILES = 512
_log = structlog.get_logger()


def run(settings: Settings, place: WorkerContext | None, *, demo: bool, greet: Callable[[int, bool], None]) -> None:
    """Serve until told to stop.

    Without a place, on a socket of its own: `greet` is told its port, and whether the demo is there for everybody.
    """
    # Modules live for ever: without them the collection below is over at once.
    gc.freeze()
    # Half the loop's worst lag beside a busy writing thread.
    sys.setswitchinterval(0.0005)
    if place is not None:
        structlog.contextvars.bind_contextvars(worker=place.number)
        # Each tells for itself what happens: one that dies must not look like the others.
        name = f"{bootstrap.gateway_name(settings)}-{place.number}"
        settings = replace(settings, events=replace(settings.events, gateway=name))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, place, demo=demo, greet=greet))


async def _serve(
    settings: Settings, place: WorkerContext | None, *, demo: bool, greet: Callable[[int, bool], None]
) -> None:
    async with bootstrap.gateway(settings) as gateway:
        has_demo = demo and await bootstrap.demo(gateway.registry) and gateway.access.is_open
        (listener,) = (place.listener,) if place else listen(settings.http.host, settings.http.port, 1)
        port = listener.getsockname()[1]

        def stopping() -> None:
            gateway.health.is_stopping = True
            gateway.long_poll.stop()

        server = HttpServer(
            gateway.app,
            replace(settings.http, max_connections=_allowed_connections(settings.http.max_connections)),
            started=place.tell_serving if place else lambda: greet(port, has_demo),
            stopping=stopping,
            count_closed=lambda reason: gateway.metrics.connections_closed.labels(reason).inc(),
        )
        gateway.metrics.connections.set_function(lambda: len(server.connections))
        if place is not None:
            gateway.health.worker = place.number
            place.follow(server)
        # Start-up objects live for ever: a full collection that walks them pauses 0.3 s with many parked requests.
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
        # A sandbox may deny it, and macOS refuses more than the kernel has.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft < needed:
        allowed = max(soft - _OTHER_FILES, 1)
        _log.warning("connection limit lowered to the limit of open files", wanted=wanted, allowed=allowed)
        return allowed
    return wanted
