"""A gateway that tells events or does not, switched by SIGUSR1 while it runs; at first it does not.

    python bench/switched.py serve ...

Two processes of one program differ by a few per cent for as long as they live: more than what is to be measured.
Whatever it has to tell when it is switched is written at once.
"""

import asyncio
import signal
from typing import Any

from mqgate.cli.main import main
from mqgate.events.writer import EventWriter
from mqgate.telemetry.recorder import EventRecorder

_start = EventWriter.start
_made: list[EventRecorder] = []


def _noted(init: Any) -> Any:
    def made(self: EventRecorder, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self.is_on = False
        _made.append(self)

    return made


def _started(self: EventWriter) -> None:
    _start(self)
    writing: set[asyncio.Task[bool]] = set()

    def switch() -> None:
        for recorder in _made:
            recorder.is_on = not recorder.is_on
        writing.add(asyncio.ensure_future(self.run_once()))

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, switch)


if __name__ == "__main__":
    EventRecorder.__init__ = _noted(EventRecorder.__init__)  # type: ignore[method-assign]  # a switch that users have no use for
    EventWriter.start = _started  # type: ignore[method-assign]  # a switch that users have no use for
    main()
