"""The kinds of client errors."""

import pytest

from mqgate.rocketmq.errors import NoResponse, NotSent, Refused, RemoteProtocolError, RocketMQError
from mqgate.rocketmq.faults import FaultKind, kind_of, names_missing_queue
from mqgate.rocketmq.remoting.codes import ResponseCode


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotSent("no route"), FaultKind.NOT_SENT),
        (NotSent("[SSL: CERTIFICATE_VERIFY_FAILED]"), FaultKind.UNTRUSTED),
        (NoResponse("timeout"), FaultKind.NO_RESPONSE),
        (RemoteProtocolError("malformed"), FaultKind.MALFORMED),
        (Refused(ResponseCode.FLOW_CONTROL, "", ""), FaultKind.BUSY),
        (Refused(ResponseCode.SYSTEM_ERROR, "", ""), FaultKind.FAILED),
        (Refused(ResponseCode.SYSTEM_ERROR, "AclException: no", ""), FaultKind.ACCESS_DENIED),
        (Refused(ResponseCode.NO_PERMISSION, "", ""), FaultKind.ACCESS_DENIED),
        (Refused(9_999, "", ""), FaultKind.OTHER),
    ],
)
def test_an_error_has_a_kind(error: RocketMQError, kind: FaultKind) -> None:
    """The kind depends on the exception, the response code, and the two texts that have no code."""
    assert kind_of(error) is kind


def test_a_missing_queue_is_found_in_the_text() -> None:
    """Brokers have no response code for it."""
    assert names_missing_queue(Refused(ResponseCode.SYSTEM_ERROR, "queueId[9] is illegal", ""))
    assert not names_missing_queue(Refused(ResponseCode.SYSTEM_ERROR, "disk full", ""))
