"""The calls of a gateway: those of its OpenAPI document, and those of the `/mq` dialect, which are not in it."""

import re
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "calls"]

_PRODUCE = (
    *("producer", "message", "keys", "delayLevel", "asyncRetryTimesIfSendFailed", "orderId", "ordered"),
    *("deliveryTimestamp", "messages"),
)
_FETCH = ("topic", "consumer", "requestId", "clientId", "useCookie", "clientIp", "pullTimeout")
_CONFIG = {
    "consumer": {"type": "string"},
    "maxPullSize": {"type": "integer"},
    "consumeTimeoutInMillis": {"type": "integer"},
    "pullTimeoutInMillis": {"type": "integer"},
    "pause": {"type": "integer"},
    "rateLimitEnabled": {"type": "integer"},
    "limitRate": {"type": "number"},
    "resetOffsetTimestamp": {"type": "integer"},
    "clientId": {"type": "string"},
    "retryMsgId": {"type": "string"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One method of one route, and what it takes."""

    name: str
    method: str
    path: str
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    # The schema of a JSON body, or None.
    body: dict[str, Any] | None = None
    takes_form: bool = False
    max_body_bytes: int = 256 << 10
    path_names: tuple[str, ...] = field(default=())


def calls(document: dict[str, Any]) -> list[Call]:
    """Return every call of the document and of the dialect."""
    found = [
        _call(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return [*found, *_dialect()]


def _call(path: str, method: str, operation: dict[str, Any]) -> Call:
    content = operation.get("requestBody", {}).get("content", {})
    names = {
        place: tuple(p["name"] for p in operation["parameters"] if p["in"] == place) for place in ("query", "header")
    }
    return Call(
        name=operation["operationId"],
        method=method.upper(),
        path=path,
        query=names["query"],
        headers=names["header"],
        body=content.get("application/json", {}).get("schema"),
        max_body_bytes=(32 << 20) if operation["operationId"] == "publish" else (256 << 10),
        path_names=tuple(re.findall(r"\{(\w+)\}", path)),
    )


def _dialect() -> list[Call]:
    config = {"type": "object", "properties": _CONFIG}
    return [
        Call(
            name="mqProduce",
            method="POST",
            path="/mq/produce",
            query=_PRODUCE,
            takes_form=True,
            max_body_bytes=12 << 20,
        ),
        Call(name="mqProduceBatch", method="POST", path="/mq/produce/batch", query=_PRODUCE, takes_form=True),
        Call(name="mqMessage", method="GET", path="/mq/message", query=_FETCH),
        Call(name="mqMessagePost", method="POST", path="/mq/message", query=_FETCH, takes_form=True),
        Call(name="mqAck", method="GET", path="/mq/ack", query=_FETCH),
        Call(name="mqUnlock", method="POST", path="/mq/unlock", query=_FETCH, takes_form=True),
        Call(name="mqClusteringOffset", method="GET", path="/mq/clustering/queue/offset", query=("consumer",)),
        Call(name="mqBroadcastOffset", method="GET", path="/mq/broadcast/queue/offset", query=("consumer",)),
        Call(name="mqConfig", method="GET", path="/mq/config/{consumer}", path_names=("consumer",)),
        Call(name="mqConsumerConfig", method="POST", path="/mq/consumer/config", headers=("MU",), body=config),
        Call(name="mqUnregister", method="POST", path="/mq/unregister", query=("consumer",), headers=("MU",)),
    ]
