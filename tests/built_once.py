"""What a process that builds a gateway for each of a thousand tests does once.

A gateway describes its API when it is built, which takes longer than to open its files: two with the same operations
get the same description. And of an exception that no test looks at, structlog would draw every local variable in a
frame, for a second.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import structlog

from mqgate.http import app, docs_page
from mqgate.http.operation import Operation

__all__ = ["describe_once", "log_plainly"]

# Of each gateway its own, and in no description.
_HANDLERS = {"handler", "refuse"}


def describe_once() -> None:
    documents: dict[str, dict[str, Any]] = {}
    # With what they were made of, so that no other document can have its place in memory.
    pages: dict[int, tuple[dict[str, Any], bytes]] = {}
    document, render = app.document, docs_page.render

    def document_once(operations: Iterable[Operation]) -> dict[str, Any]:
        operations = tuple(operations)
        told = repr([[getattr(each, name) for name in _DESCRIBED] for each in operations])
        return documents.get(told) or documents.setdefault(told, document(operations))

    def render_once(described: dict[str, Any]) -> bytes:
        if id(described) not in pages:
            pages[id(described)] = described, render(described)
        return pages[id(described)][1]

    app.document, docs_page.render = document_once, render_once


_DESCRIBED = [each.name for each in fields(Operation) if each.name not in _HANDLERS]


def log_plainly() -> None:
    for each in structlog.get_config()["processors"]:
        if isinstance(each, structlog.dev.ConsoleRenderer):
            each.exception_formatter = structlog.dev.plain_traceback
