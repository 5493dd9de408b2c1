"""What every lease store promises in message mode. The chapters lie in message_*_contract.py."""

from mqgate.testing.lease_telling_contract import MessageTellingContract
from mqgate.testing.message_attempt_contract import MessageAttemptContract, PlaceMessageContract
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
    PlaceMessageContract,
    FilterContract,
    OrderContract,
    MessageOperateContract,
    MessageTellingContract,
):
    """An adapter passes by providing `store`, empty, and `clock`, the ManualClock that the store goes by."""
