"""The contract of lease stores in queue and broadcast mode. Its parts are in the files lease_*_contract.py."""

from mqgate.testing.lease_attempt_contract import AttemptContract, PullReportContract
from mqgate.testing.lease_broadcast_contract import BroadcastContract
from mqgate.testing.lease_choose_contract import ChooseContract
from mqgate.testing.lease_closed_contract import ClosedContract
from mqgate.testing.lease_events_contract import LeaseEventsContract
from mqgate.testing.lease_operate_contract import (
    ChangingLogContract,
    CommittedContract,
    PauseContract,
    RateContract,
    SeekContract,
)
from mqgate.testing.lease_poison_contract import PoisonContract
from mqgate.testing.lease_settle_contract import SettleContract

__all__ = ["LeaseStoreContract"]


class LeaseStoreContract(
    ChooseContract,
    SettleContract,
    AttemptContract,
    PullReportContract,
    PoisonContract,
    ClosedContract,
    ChangingLogContract,
    CommittedContract,
    SeekContract,
    PauseContract,
    RateContract,
    BroadcastContract,
    LeaseEventsContract,
):
    """Tests of a lease store. An adapter provides `store` (empty) and `clock`, the ManualClock that the store uses.

    `max_clients` is the limit of broadcast clients per group of that store. A small number keeps the test short.
    """
