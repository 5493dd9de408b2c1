"""The states of an application.

submitted --approve--> approved --apply--> applied
|                    |  ^
|--decline--> declined  '--retry-- failed
'--withdraw-> withdrawn   (approved --fail--> failed --withdraw--> withdrawn)
"""

from collections.abc import Mapping

from mqgate.core.application import Application, ApplicationState
from mqgate.core.errors import ApplicationChanged

__all__ = ["TRANSITIONS", "next_state"]

_S = ApplicationState
TRANSITIONS: Mapping[tuple[ApplicationState, str], ApplicationState] = {
    (_S.SUBMITTED, "approve"): _S.APPROVED,
    (_S.SUBMITTED, "decline"): _S.DECLINED,
    (_S.SUBMITTED, "withdraw"): _S.WITHDRAWN,
    (_S.APPROVED, "apply"): _S.APPLIED,
    (_S.APPROVED, "fail"): _S.FAILED,
    (_S.FAILED, "retry"): _S.APPROVED,
    (_S.FAILED, "withdraw"): _S.WITHDRAWN,
}


def next_state(application: Application, action: str) -> ApplicationState:
    """Return the state after an action. Raise ApplicationChanged if the current state does not allow it."""
    state = TRANSITIONS.get((application.state, action))
    if state is None:
        decided = f" by {application.decided_by}" if application.decided_by else ""
        raise ApplicationChanged(
            f"Application {application.id} is {application.state}{decided}.", state=application.state
        )
    return state
