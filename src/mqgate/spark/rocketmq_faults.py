"""Translates errors of RocketMQ to errors of the source, with the remedy."""

from mqgate.rocketmq import NoResponse, NotSent, Refused, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.spark.log import AccessDenied, LogError, LogUnavailable, TopicMissing

__all__ = ["is_transient", "to_log_error"]

_BUSY = {
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
}
# Brokers report these errors only in the text of a response.
_NO_QUEUE = "queueId"
_NO_ACCESS = "AclException"
# OpenSSL error code, contained in the text of the wrapping error.
_NO_TRUST = "CERTIFICATE_VERIFY_FAILED"


def is_transient(error: RocketMQError) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, Refused):
        return error.code in _BUSY and _NO_QUEUE not in error.remark and _NO_ACCESS not in error.remark
    return _NO_TRUST not in str(error)


def to_log_error(error: RocketMQError, topic: str) -> LogError:
    """Return the error to raise after the last retry."""
    if _NO_TRUST in str(error):
        return LogError(
            f"the certificate of RocketMQ cannot be verified: {error}. Check that `tlsCa` contains the "
            "authority that signed it, and that the certificate names the address of the server (subjectAltName)"
        )
    if isinstance(error, NotSent | NoResponse):
        return LogUnavailable(
            f"RocketMQ does not respond: {error}. Start the broker or the name server, or check `nameServers`, `tls` "
            "and that the driver and all executors can reach the addresses that the brokers register (brokerIP1)"
        )
    if not isinstance(error, Refused):
        return LogUnavailable(f"the server is not RocketMQ: {error}. Check `nameServers` and `tls`")
    return _refusal(error, topic)


def _refusal(error: Refused, topic: str) -> LogError:
    if error.code == ResponseCode.NO_PERMISSION or _NO_ACCESS in error.remark:
        return AccessDenied(
            f"RocketMQ denied access to topic {topic}: {error}. Check `accessKey` and `secretKey`, and their "
            "permissions on the topic and the groups; or give the topic read permission"
        )
    if error.code == ResponseCode.TOPIC_NOT_EXIST:
        return TopicMissing(f"RocketMQ has no topic {topic}: register it first, or check its name and `namespace`")
    if _NO_QUEUE in error.remark:
        return TopicMissing(
            f"topic {topic} does not have the queue: {error}. Remove it from `assign` and from the offsets"
        )
    if error.code in _BUSY:
        return LogUnavailable(f"RocketMQ is overloaded or failing: {error}. Check the log of the broker")
    return LogError(f"RocketMQ rejected the request for topic {topic}: {error}. Check the log of the broker")
