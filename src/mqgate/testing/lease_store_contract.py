"""What every lease store promises. The chapters lie in files of their own, named lease_*_contract.py."""

from mqgate.testing.lease_attempt_contract import AttemptContract, PlaceContract
from mqgate.testing.lease_broadcast_contract import BroadcastContract
from mqgate.testing.lease_choose_contract import ChooseContract
from mqgate.testing.lease_closed_contract import ClosedContract
from mqgate.testing.lease_operate_contract import (
    ChangingLogContract,
    CommittedContract,
    PauseContract,
    RateContract,
    SeekContract,
)
from mqgate.testing.lease_poison_contract import PoisonContract
from mqgate.testing.lease_settle_contract import SettleContract
from mqgate.testing.lease_telling_contract import TellingContract

__all__ = ["LeaseStoreContract"]


class LeaseStoreContract(
    ChooseContract,
    SettleContract,
    AttemptContract,
    PlaceContract,
    PoisonContract,
    ClosedContract,
    ChangingLogContract,
    CommittedContract,
    SeekContract,
    PauseContract,
    RateContract,
    BroadcastContract,
    TellingContract,
):
    """An adapter passes by providing `store`, empty, and `clock`, the ManualClock that the store goes by.

    `most_clients` says how many broadcast clients a group of that store may have; a small number is kind.
    """
