"""Spans of OpenTelemetry, if it is installed. The W3C trace context travels in the properties of messages."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mqgate.client.delivery import Message

__all__ = ["trace_properties", "tracing_span"]


_NO_SPAN = nullcontext()
_NO_PROPERTIES: Mapping[str, str] = {}


@cache
def _trace_api() -> Any:
    """Return the module opentelemetry.trace, or None if it is not installed."""
    return import_module("opentelemetry.trace") if find_spec("opentelemetry") else None


def _is_configured() -> bool:
    """Return whether the application has set a tracer provider, which is that of the SDK."""
    api = _trace_api()
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def trace_properties() -> Mapping[str, str]:
    """Return the properties that make the current span the parent of the handler's span."""
    if not _is_configured():
        return _NO_PROPERTIES
    from opentelemetry.propagate import inject  # noqa: PLC0415 - optional

    properties: dict[str, str] = {}
    inject(properties)
    return properties


def tracing_span(message: Message, group: str) -> AbstractContextManager[Any]:
    """Return the context manager of the span in which a message is handled."""
    return _span(message, group) if _is_configured() else _NO_SPAN


@contextmanager
def _span(message: Message, group: str) -> Iterator[None]:
    from opentelemetry.propagate import extract  # noqa: PLC0415 - optional
    from opentelemetry.trace import SpanKind, get_tracer  # noqa: PLC0415 - optional

    start = get_tracer("mqgate").start_as_current_span
    attributes = {
        "messaging.system": "mqgate",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.topic,
        "messaging.consumer.group.name": group,
        "messaging.message.id": message.id,
    }
    context = extract(message.properties)
    with start(f"process {message.topic}", context=context, kind=SpanKind.CONSUMER, attributes=attributes):
        yield
