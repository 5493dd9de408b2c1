"""The log fields of the current request. Every line that is logged while it is served contains them."""

from contextvars import ContextVar

import structlog

__all__ = ["add_request_fields", "bind_request", "clear_request"]

_LOGGED = ("request_id", "topic", "group")
_request: ContextVar[dict[str, str] | None] = ContextVar("mqgate_request", default=None)


def bind_request(fields: dict[str, str]) -> None:
    """Add request_id, topic and group of `fields` to the log lines of this task. The mapping may change later."""
    _request.set(fields)


def clear_request() -> None:
    """Remove the fields at the end of the request, also from tasks that it started and that run longer."""
    fields = _request.get()
    if fields is not None:
        fields.clear()


def add_request_fields(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add the fields of the request to a line. Fields of the line itself take precedence."""
    fields = _request.get()
    if fields:
        for name in _LOGGED:
            if name in fields:
                event.setdefault(name, fields[name])
    return event
