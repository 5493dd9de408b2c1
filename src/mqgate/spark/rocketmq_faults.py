"""Translates errors of RocketMQ to errors of the source, with the remedy."""

from mqgate.rocketmq.errors import RocketMQError
from mqgate.rocketmq.faults import FaultKind, kind_of, names_missing_queue
from mqgate.spark.log import AccessDenied, LogError, LogUnavailable, TopicMissing

__all__ = ["is_transient", "to_log_error"]

_OVERLOADED = {FaultKind.BUSY, FaultKind.UNAVAILABLE, FaultKind.FAILED}
_UNANSWERED = {FaultKind.NOT_SENT, FaultKind.NO_RESPONSE}
_TRANSIENT = {*_OVERLOADED, *_UNANSWERED, FaultKind.MALFORMED}


def is_transient(error: RocketMQError) -> bool:
    """Return whether a retry may succeed."""
    return kind_of(error) in _TRANSIENT and not names_missing_queue(error)


def to_log_error(error: RocketMQError, topic: str) -> LogError:
    """Return the error to raise after the last retry."""
    kind = kind_of(error)
    if kind is FaultKind.UNTRUSTED:
        return LogError(
            f"the certificate of RocketMQ cannot be verified: {error}. Check that `tlsCa` contains the "
            "authority that signed it, and that the certificate names the address of the server (subjectAltName)"
        )
    if kind in _UNANSWERED:
        return LogUnavailable(
            f"RocketMQ does not respond: {error}. Start the broker or the name server, or check `nameServers`, `tls` "
            "and that the driver and all executors can reach the addresses that the brokers register (brokerIP1)"
        )
    if kind is FaultKind.MALFORMED:
        return LogUnavailable(f"the server is not RocketMQ: {error}. Check `nameServers` and `tls`")
    return _refusal(error, kind, topic)


def _refusal(error: RocketMQError, kind: FaultKind, topic: str) -> LogError:
    if kind is FaultKind.ACCESS_DENIED:
        return AccessDenied(
            f"RocketMQ denied access to topic {topic}: {error}. Check `accessKey` and `secretKey`, and their "
            "permissions on the topic and the groups; or give the topic read permission"
        )
    if kind is FaultKind.TOPIC_MISSING:
        return TopicMissing(f"RocketMQ has no topic {topic}: register it first, or check its name and `namespace`")
    if names_missing_queue(error):
        return TopicMissing(
            f"topic {topic} does not have the queue: {error}. Remove it from `assign` and from the offsets"
        )
    if kind in _OVERLOADED:
        return LogUnavailable(f"RocketMQ is overloaded or failing: {error}. Check the log of the broker")
    return LogError(f"RocketMQ rejected the request for topic {topic}: {error}. Check the log of the broker")
