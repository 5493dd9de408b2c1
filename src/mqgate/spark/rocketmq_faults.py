"""What RocketMQ says, in the words of the source: what happened, and what to do about it."""

from mqgate.rocketmq import NoResponse, NotSent, Refused, RocketMQError
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.spark.log import AccessDenied, LogError, LogUnavailable, TopicMissing

__all__ = ["is_transient", "told"]

_BUSY = {
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
}
# Words of brokers that have no number for it.
_NO_QUEUE = "queueId"
_NO_ACCESS = "AclException"
# OpenSSL's word, in the text of whatever it is wrapped in.
_NO_TRUST = "CERTIFICATE_VERIFY_FAILED"


def is_transient(error: RocketMQError) -> bool:
    """Whether the same may succeed a little later."""
    if isinstance(error, Refused):
        return error.code in _BUSY and _NO_QUEUE not in error.remark and _NO_ACCESS not in error.remark
    return _NO_TRUST not in str(error)


def told(error: RocketMQError, topic: str) -> LogError:
    """The error to raise, when nothing more is tried."""
    if _NO_TRUST in str(error):
        return LogError(
            f"RocketMQ's certificate is not believed: {error}. Check `tlsCa`: it has to be a file with the authority "
            "that signed it; and the certificate has to name the server's address (subjectAltName)"
        )
    if isinstance(error, NotSent | NoResponse):
        return LogUnavailable(
            f"RocketMQ does not answer: {error}. Start the broker or the name server, or check `nameServers`, `tls` "
            "and that the driver and all executors can reach the addresses that the brokers register (brokerIP1)"
        )
    if not isinstance(error, Refused):
        return LogUnavailable(f"what answers is no RocketMQ: {error}. Check `nameServers` and `tls`")
    return _refusal(error, topic)


def _refusal(error: Refused, topic: str) -> LogError:
    if error.code == ResponseCode.NO_PERMISSION or _NO_ACCESS in error.remark:
        return AccessDenied(
            f"RocketMQ refuses topic {topic}: {error}. Check `accessKey` and `secretKey`, and that they may read the "
            "topic and use the groups; or give the topic read permission"
        )
    if error.code == ResponseCode.TOPIC_NOT_EXIST:
        return TopicMissing(f"RocketMQ has no topic {topic}: register it first, or check its name and `namespace`")
    if _NO_QUEUE in error.remark:
        return TopicMissing(f"topic {topic} has no such queue: {error}. Leave it out of `assign` and of the offsets")
    if error.code in _BUSY:
        return LogUnavailable(f"RocketMQ is too busy, or in trouble: {error}. Look into the broker's log")
    return LogError(f"RocketMQ refuses to serve topic {topic}: {error}. Look into the broker's log")
