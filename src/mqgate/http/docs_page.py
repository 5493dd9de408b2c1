"""The page at /docs: all operations, without scripts or external resources."""

import html
import json
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2330;background:#fff}
code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f6f9;padding:.8rem;overflow:auto;border-radius:6px}
summary{cursor:pointer;padding:.35rem 0}h2{margin-top:2rem;border-bottom:1px solid #d7dce4}
.m{display:inline-block;width:5.2rem;font-weight:700}.POST{color:#1a7f4b}.GET{color:#1f5fbf}.PUT{color:#9a6400}
.DELETE{color:#b3261e}.PATCH{color:#6b3fa0}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#12161d;color:#dfe5ee}pre{background:#1c232d}h2{border-color:#313a47}
.GET{color:#7fb0ff}.POST{color:#67d39b}.PUT{color:#e3b04b}.DELETE{color:#ff8a80}.PATCH{color:#c9a2ff}a{color:#9cc2ff}}
"""


def render(document: dict[str, Any]) -> bytes:
    """Return the page of an OpenAPI document."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(path, method.upper(), operation))
    sections = "".join(f"<h2>{html.escape(tag)}</h2>{''.join(found)}" for tag, found in by_tag.items())
    schemas = "".join(
        f"<details id='{html.escape(name)}'><summary><code>{html.escape(name)}</code></summary>"
        f"{_json(schema)}</details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>mqgate API</title><style>{_STYLE}</style><h1>mqgate {html.escape(document['info']['version'])}</h1>"
        "<p>All operations of the native API, generated from "
        f"<a href='/openapi.json'>openapi.json</a>.</p>{sections}<h2>Types</h2>{schemas}</html>"
    ).encode()


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(parameter['in'])}</td><td><code>{html.escape(parameter['name'])}</code></td>"
        f"<td><code>{html.escape(json.dumps(parameter['schema']))}</code></td></tr>"
        for parameter in operation["parameters"]
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    responses = "".join(
        f"<tr><td>{status}</td><td>{html.escape(response['description'])}</td><td>{_links(response)}</td></tr>"
        for status, response in operation["responses"].items()
    )
    return (
        f"<details><summary><span class='m {method}'>{method}</span><code>{html.escape(path)}</code> &nbsp; "
        f"{html.escape(operation['summary'])}</summary><table>{rows}</table>"
        f"{'<p>Body</p>' + _json(body) if body else ''}<p>Responses</p><table>{responses}</table></details>"
    )


def _links(response: dict[str, Any]) -> str:
    names = {
        content["schema"]["$ref"].rpartition("/")[2]
        for content in response.get("content", {}).values()
        if "$ref" in content["schema"]
    }
    return " ".join(f"<a href='#{html.escape(name)}'>{html.escape(name)}</a>" for name in sorted(names))


def _json(value: Any) -> str:
    return f"<pre>{html.escape(json.dumps(value, indent=2))}</pre>"
