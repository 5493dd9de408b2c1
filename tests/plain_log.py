"""Of an exception that no test looks at, structlog would draw every local variable in a frame, for a second."""

import structlog

__all__ = ["log_plainly"]


def log_plainly() -> None:
    for each in structlog.get_config()["processors"]:
        if isinstance(each, structlog.dev.ConsoleRenderer):
            each.exception_formatter = structlog.dev.plain_traceback
