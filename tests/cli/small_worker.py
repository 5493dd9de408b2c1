"""A worker with nothing behind it: `small_worker.py DIRECTORY --worker PLACE`.

It answers its pid; `/slow` when the test has made the file `go` in the directory; `/wait` when the worker is told to
stop, which makes a file `stopping-PID`. With the file `broken` it ends with exit code 2 as one with bad settings does,
with `frail` as soon as it serves.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop

from mqgate.cli.worker import WorkerContext
from mqgate.http.server.server import HttpServer
from mqgate.settings import HttpSettings


async def main() -> None:
    directory, worker = Path(sys.argv[1]), WorkerContext.parse(sys.argv[3])
    if (directory / "broken").exists():
        sys.stderr.write("error: the settings are broken\n")
        sys.exit(2)
    stopped, go = asyncio.Event(), directory / "go"

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            (directory / "begun").touch()
            while not go.exists():  # noqa: ASYNC110 - the test is another process
                await asyncio.sleep(0.01)
        elif scope["path"] == "/wait":
            (directory / "begun").touch()
            await stopped.wait()
        body = str(os.getpid()).encode()
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    def started() -> None:
        worker.report_serving()
        if (directory / "frail").exists():
            os._exit(9)

    def stopping() -> None:
        (directory / f"stopping-{os.getpid()}").touch()
        stopped.set()

    server = HttpServer(app, HttpSettings(stop_timeout=timedelta(seconds=20)), started=started, stopping=stopping)
    worker.follow(server)
    await server.serve(worker.listener)


with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
