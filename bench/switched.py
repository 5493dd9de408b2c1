"""A gateway whose event recording is switched by SIGUSR1 while it runs; initially it is off.

    python bench/switched.py serve ...

Two processes of one program differ by a few per cent, which is more than the effect to measure. Buffered events are
written when recording is switched.
"""

import asyncio
import signal
from typing import Any

from mqgate.cli.main import main
from mqgate.events.recorder import EventRecorder
from mqgate.events.writer import EventWriter

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
    EventRecorder.__init__ = _noted(EventRecorder.__init__)  # type: ignore[method-assign]  # a switch for benchmarks only
    EventWriter.start = _started  # type: ignore[method-assign]  # a switch for benchmarks only
    main()
