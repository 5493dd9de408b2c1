"""One process that serves the gateway: the only one, or a worker in its place under a supervisor."""

import asyncio
import gc
import sys
from collections.abc import Callable
from dataclasses import replace

import structlog
import uvloop

from mqgate import bootstrap
from mqgate.cli.listening import listen
from mqgate.cli.server import Server
from mqgate.cli.worker import Place
from mqgate.settings import Settings

__all__ = ["run"]


def run(settings: Settings, place: Place | None, *, demo: bool, greet: Callable[[int, bool], None]) -> None:
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


async def _serve(settings: Settings, place: Place | None, *, demo: bool, greet: Callable[[int, bool], None]) -> None:
    async with bootstrap.gateway(settings) as gateway:
        has_demo = demo and await bootstrap.demo(gateway.registry) and gateway.access.is_open
        (listener,) = (place.listener,) if place else listen(settings.http.host, settings.http.port, 1)
        port = listener.getsockname()[1]

        def stopping() -> None:
            gateway.health.is_stopping = True
            gateway.long_poll.stop()

        server = Server(
            gateway.app,
            stop_timeout=settings.http.stop_timeout,
            started=place.tell_serving if place else lambda: greet(port, has_demo),
            stopping=stopping,
        )
        if place is not None:
            gateway.health.worker = place.number
            place.follow(server)
        # Start-up objects live for ever: a full collection that walks them pauses 0.3 s with many parked requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 50, 100)
        await server.serve(sockets=[listener])
