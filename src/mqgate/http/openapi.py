"""The OpenAPI 3.1 document, built from the route table and the request and response types."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mqgate import __version__
from mqgate.http.native.schemas import Problem
from mqgate.http.operation import Operation
from mqgate.http.schema_details import add_details

_TEMPLATE = "#/components/schemas/{name}"
_DESCRIPTIONS = {
    200: "Success",
    201: "Stored",
    202: "Scheduled",
    204: "Deleted",
    207: "Partial success: one outcome per item",
    400: "Invalid request",
    401: "Valid credentials are required",
    403: "The caller lacks permission",
    404: "Not found",
    405: "Method not allowed",
    406: "Media type not available",
    409: "Conflict with the current state",
    410: "The lease no longer exists",
    412: "The entry exists already",
    413: "The request is too large",
    422: "The idempotency key was used with a different body",
    429: "Limit exceeded",
    431: "The request headers are too large",
    500: "Internal error",
    503: "Temporarily unavailable",
    507: "The store is full",
}
_COMMON_ERRORS = (400, 413, 431, 500, 503)
_KEY_ERRORS = (401, 403)
_PARAMETER = re.compile(r"\{(\w+)\}")
_PATTERNS = {
    "topic": "^[A-Za-z0-9_-]{1,100}$",
    "producer": "^[A-Za-z0-9_-]{1,100}$",
    "group": "^[A-Za-z0-9_-]{1,100}$",
    "account": "^[A-Za-z0-9_-]{1,100}$",
    "team": "^[A-Za-z0-9_-]{1,100}$",
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document of all native operations. The /mq dialect is not part of it."""
    documented = [operation for operation in operations if not operation.path.startswith(("/mq/", "/openapi", "/docs"))]
    types: list[Any] = [Problem]
    for operation in documented:
        for used in (operation.request_type, operation.query, *operation.responses.values()):
            types += used if isinstance(used, tuple) else [used] if used else []
    schemas, components = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    add_details(components)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in documented:
        described = _describe(operation, by_type, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "mqgate", "version": __version__, "summary": "HTTP gateway for message queues"},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "mqgate_session"},
            },
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
        described["security"] = [{}, {"key": []}, {"session": []}]
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
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(member)}
        for name, member in schema["properties"].items()
    ]


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without null: an optional query parameter is omitted, never null."""
    plain = {name: value for name, value in schema.items() if name != "default" or value is not None}
    if "anyOf" in plain:
        kinds = [kind for kind in plain.pop("anyOf") if kind != {"type": "null"}]
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
    for status, types in operation.responses.items():
        found[str(status)] = {"description": _DESCRIPTIONS[status]}
        if types is not None:
            kinds = [by_type[repr(kind)] for kind in (types if isinstance(types, tuple) else (types,))]
            schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
            found[str(status)]["content"] = {operation.content_type: {"schema": schema}}
    if operation.stream_type:
        found["200"]["content"][operation.stream_type] = {"schema": {"type": "string", "format": "binary"}}
    problem = {"application/problem+json": {"schema": by_type[repr(Problem)]}}
    errors = {*_COMMON_ERRORS, *operation.errors, *(() if operation.is_public else _KEY_ERRORS)}
    for status in sorted(errors):
        entry = found.setdefault(str(status), {"description": _DESCRIPTIONS[status], "content": {}})
        entry["content"] |= problem
    return found
