"""The contract of lease stores in message mode. Its parts are in the files message_*_contract.py."""

from mqgate.testing.lease_events_contract import MessageEventsContract
from mqgate.testing.message_attempt_contract import MessageAttemptContract, MessagePullReportContract
from mqgate.testing.message_closed_contract import ClosedMessageContract
from mqgate.testing.message_grant_contract import ExtendContract, GrantContract, SettleMessageContract
from mqgate.testing.message_operate_contract import MessageOperateContract
from mqgate.testing.message_order_contract import FilterContract, OrderContract
from mqgate.testing.message_retry_contract import CapContract, DeadMessageContract, RetryContract

__all__ = ["MessageLeaseContract"]


class MessageLeaseContract(
    GrantContract,
    SettleMessageContract,
    ExtendContract,
    RetryContract,
    DeadMessageContract,
    CapContract,
    ClosedMessageContract,
    MessageAttemptContract,
    MessagePullReportContract,
    FilterContract,
    OrderContract,
    MessageOperateContract,
    MessageEventsContract,
):
    """Tests of a lease store. An adapter provides `store` (empty) and `clock`, the ManualClock that the store uses."""
