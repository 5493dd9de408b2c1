"""Logging: events with fields, as JSON or readable on a terminal. Warnings of libraries have the same format."""

import logging
import sys

import structlog

from mqgate.core.urls import mask_passwords
from mqgate.telemetry.log_context import add_request_fields


def configure(level: str, style: str) -> None:
    """Configure structlog and logging, once at start. Style `auto` is readable on a terminal and JSON elsewhere."""
    is_console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if is_console else structlog.processors.JSONRenderer()
    )
    context: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_request_fields,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[structlog.typing.Processor] = [structlog.processors.format_exc_info, _mask, renderer]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=context + rendering,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    handler = _StructlogHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*context, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.WARNING), force=True)
    logging.captureWarnings(capture=True)


class _StructlogHandler(logging.Handler):
    """Handler that prints records through structlog, under the same lock, so that lines are never mixed."""

    def __init__(self) -> None:
        super().__init__()
        self._print = structlog.PrintLogger(sys.stdout).msg

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._print(self.format(record))
        except Exception:  # noqa: BLE001 - handlers of `logging` must not raise
            self.handleError(record)


def _mask(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Mask passwords in URLs: drivers include the URL in their error messages."""
    for name, value in event.items():
        if type(value) is str:
            event[name] = mask_passwords(value)
    return event
