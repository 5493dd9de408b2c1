"""The HTTP status and the problem document of every error."""

import math
from collections.abc import Mapping

from mqgate.core import errors
from mqgate.core.errors import MqgateError
from mqgate.core.lease import SettlementOutcome, SettlementResult

STATUS: Mapping[type[MqgateError], int] = {
    errors.MalformedRequest: 400,
    errors.InvalidJson: 400,
    errors.UnknownField: 400,
    errors.InvalidValue: 400,
    errors.EmptyBody: 400,
    errors.ReceiptInvalid: 400,
    errors.UnsupportedByMode: 400,
    errors.UnsupportedByEngine: 400,
    errors.NotSupportedYet: 400,
    errors.TooLarge: 413,
    errors.HeadersTooLarge: 431,
    errors.MethodNotAllowed: 405,
    errors.NotAcceptable: 406,
    errors.RouteNotFound: 404,
    errors.TopicNotFound: 404,
    errors.ProducerNotFound: 404,
    errors.GroupNotFound: 404,
    errors.KeyNotFound: 404,
    errors.AccountNotFound: 404,
    errors.TeamNotFound: 404,
    errors.ApplicationNotFound: 404,
    errors.QueueNotFound: 404,
    errors.MessageNotFound: 404,
    errors.DeadLetterNotFound: 404,
    errors.FiguresNotFound: 404,
    errors.ClientNotFound: 404,
    errors.AlarmRuleNotFound: 404,
    errors.SilenceNotFound: 404,
    errors.ChannelNotFound: 404,
    errors.TopicInUse: 409,
    errors.FixedSetting: 409,
    errors.QueuesOnlyGrow: 409,
    errors.AttemptMismatch: 409,
    errors.RegistryChanged: 409,
    errors.LeaseLost: 409,
    errors.LeaseGone: 410,
    errors.ScheduledNotFound: 404,
    errors.TeamInUse: 409,
    errors.LastAdmin: 409,
    errors.AlreadyExists: 412,
    errors.DuplicateApplication: 409,
    errors.ApplicationChanged: 409,
    errors.KeyAlreadyTaken: 409,
    errors.LastKey: 409,
    errors.FirstKeyNotAdmin: 409,
    errors.AlreadyDelivered: 409,
    errors.AlreadyCancelled: 409,
    errors.IdempotencyMismatch: 422,
    errors.Unauthorized: 401,
    errors.SignInFailed: 401,
    errors.Forbidden: 403,
    errors.HostNotAllowed: 403,
    errors.OriginNotAllowed: 403,
    errors.RequestTimeout: 408,
    errors.RateLimited: 429,
    errors.SignInThrottled: 429,
    errors.TooManyClients: 429,
    errors.TooManyParked: 429,
    errors.Overloaded: 503,
    errors.StorageFull: 507,
    errors.StorageUnavailable: 503,
    errors.QueueUnavailable: 503,
    errors.OutcomeUnknown: 503,
    errors.StorageRefused: 502,
}
_WITH_RETRY_AFTER = {429, 503}


def problem(error: MqgateError) -> dict[str, object]:
    """Return the problem document of an error. `retry_after` becomes a header, not a member."""
    members = {name: value for name, value in error.members.items() if name != "retry_after"}
    return {
        "status": STATUS[type(error)],
        "code": error.code,
        "title": error.title,
        "detail": error.detail,
        "retryable": error.retryable,
        **members,
    }


def headers_of(error: MqgateError) -> list[tuple[bytes, bytes]]:
    """Return the headers that the status of an error requires."""
    if STATUS[type(error)] in _WITH_RETRY_AFTER:
        wait = error.members.get("retry_after", 1)
        seconds = max(math.ceil(wait), 1) if isinstance(wait, int | float) else 1
        return [(b"retry-after", str(seconds).encode())]
    if isinstance(error, errors.Unauthorized):
        return [(b"www-authenticate", b"Bearer")]
    if isinstance(error, errors.MethodNotAllowed):
        return [(b"allow", str(error.members["allow"]).encode())]
    return []


def refusal(settled: SettlementResult) -> MqgateError:
    """Return the error of a settlement that was not applied."""
    outcome = settled.outcome
    if settled.error is not None:
        settled.error.members["outcome"] = outcome
        return settled.error
    if outcome is SettlementOutcome.LOST:
        return errors.LeaseLost(
            "Another client holds or settled the message, or it is a dead letter. Nothing was changed.", outcome=outcome
        )
    if outcome is SettlementOutcome.GONE:
        return errors.LeaseGone(
            "Retention, a seek, a deletion or lost lease state ended this lease. Nothing was changed.",
            outcome=outcome,
        )
    return errors.ReceiptInvalid("Send the receipt unchanged, to the group that received it.", outcome=outcome)
