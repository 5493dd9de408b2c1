"""A supervisor of any command: `supervise.py PORT WORKERS COMMAND...`; prints `serving` once."""

import asyncio
import sys

from mqgate.cli.supervisor import Supervisor
from mqgate.http.server.listening import listen
from mqgate.telemetry import logs


async def main() -> int:
    port, workers, *command = sys.argv[1:]
    listeners = listen("127.0.0.1", int(port), int(workers))
    return await Supervisor(
        command,
        listeners,
        stop_timeout=20.0,
        serving=lambda: print("serving", flush=True),  # noqa: T201 - what the test waits for
    ).run()


logs.configure("info", "json")
sys.exit(asyncio.run(main()))
