"""Of an exception that no test looks at, structlog would draw every local variable in a frame, for a second."""

import structlog

__all__ = ["log_plainly"]


def log_plainly() -> None:
    for processor in structlog.get_config()["processors"]:
        if isinstance(processor, structlog.dev.ConsoleRenderer):
            processor.exception_formatter = structlog.dev.plain_traceback
