"""The OpenAPI 3.1 document, read off the table of operations and the structures they take and give."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mqgate import __version__
from mqgate.http.native.schemas import Problem
from mqgate.http.operation import Operation

_TEMPLATE = "#/components/schemas/{name}"
_REASONS = {
    200: "Done",
    201: "Stored",
    202: "Scheduled",
    204: "Gone",
    207: "Done in part: an outcome each",
    400: "The request is not acceptable",
    401: "A valid key is needed",
    403: "The key does not allow this",
    404: "No such thing",
    405: "Not with this method",
    406: "Not in this form",
    409: "In conflict with what is there",
    410: "No longer there",
    413: "Too large",
    422: "The idempotency key was used with another body",
    429: "Too many",
    431: "Headers too large",
    500: "A bug",
    503: "Not now",
    507: "The store is full",
}
_ALWAYS = (400, 413, 431, 500, 503)
_WITH_KEYS = (401, 403)
_PARAMETER = re.compile(r"\{(\w+)\}")
_PATTERNS = {
    "topic": "^[A-Za-z0-9_-]{1,100}$",
    "producer": "^[A-Za-z0-9_-]{1,100}$",
    "group": "^[A-Za-z0-9_-]{1,100}$",
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    chosen = [operation for operation in operations if not operation.path.startswith(("/mq/", "/openapi", "/docs"))]
    types: list[Any] = [Problem]
    for operation in chosen:
        for each in (operation.request_type, operation.query, *operation.responses.values()):
            types += each if isinstance(each, tuple) else [each] if each else []
    schemas, components = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in chosen:
        described = _describe(operation, by_type, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "mqgate", "version": __version__, "summary": "One HTTP door to message middleware"},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation, by_type: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *_path_parameters(operation),
            *_query_parameters(operation, components),
            *_headers(operation),
        ],
        "responses": _responses(operation, by_type),
    }
    if not operation.is_public:
        described["security"] = [{}, {"key": []}]
    if operation.request_type is not None:
        content: dict[str, Any] = {"application/json": {"schema": by_type[repr(operation.request_type)]}}
        if operation.accepts_bytes:
            content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        described["requestBody"] = {"required": not operation.is_body_optional, "content": content}
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"} | ({"pattern": _PATTERNS[name]} if name in _PATTERNS else {}),
        }
        for name in _PARAMETER.findall(operation.path)
    ]


def _query_parameters(operation: Operation, components: Mapping[str, Any]) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = components[operation.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(each)}
        for name, each in schema["properties"].items()
    ]


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter that may be left out is simply left out; there is no null in a query."""
    plain = {name: value for name, value in schema.items() if name != "default" or value is not None}
    if "anyOf" in plain:
        kinds = [each for each in plain.pop("anyOf") if each != {"type": "null"}]
        return {**plain, **kinds[0]} if len(kinds) == 1 else {**plain, "anyOf": kinds}
    return plain


def _headers(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": {"type": "string", "minLength": 1},
        }
        for name, text in operation.headers.items()
    ]


def _responses(operation: Operation, by_type: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, shape in operation.responses.items():
        found[str(status)] = {"description": _REASONS[status]}
        if shape is not None:
            kinds = [by_type[repr(each)] for each in (shape if isinstance(shape, tuple) else (shape,))]
            schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
            found[str(status)]["content"] = {operation.content_type: {"schema": schema}}
    if operation.stream_type:
        found["200"]["content"][operation.stream_type] = {"schema": {"type": "string", "format": "binary"}}
    problem = {"application/problem+json": {"schema": by_type[repr(Problem)]}}
    errors = {*_ALWAYS, *operation.errors, *(() if operation.is_public else _WITH_KEYS)}
    for status in sorted(errors):
        entry = found.setdefault(str(status), {"description": _REASONS[status], "content": {}})
        entry["content"] |= problem
    return found
