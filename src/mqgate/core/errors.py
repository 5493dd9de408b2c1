"""All errors that mqgate reports.

    MqgateError
    |-- BadInput            the caller can correct it
    |   |-- MalformedRequest  InvalidJson  UnknownField  InvalidValue  EmptyBody  ReceiptInvalid
    |   |-- UnsupportedByMode  UnsupportedByEngine  NotSupportedYet
    |   |-- TooLarge  HeadersTooLarge  MethodNotAllowed  NotAcceptable
    |-- NotFound
    |   |-- RouteNotFound  TopicNotFound  ProducerNotFound  GroupNotFound  KeyNotFound  AccountNotFound  TeamNotFound
    |   |-- ApplicationNotFound
    |   |-- QueueNotFound  MessageNotFound  DeadLetterNotFound  ClientNotFound  ScheduledNotFound  FiguresNotFound
    |   |-- AlarmRuleNotFound  SilenceNotFound  ChannelNotFound
    |-- Conflict
    |   |-- TopicInUse  FixedSetting  QueuesOnlyGrow  AttemptMismatch  RegistryChanged
    |   |-- TeamInUse  LastAdmin  AlreadyExists
    |   |-- DuplicateApplication  ApplicationChanged  KeyAlreadyTaken
    |   |-- LeaseLost  LeaseGone  AlreadyDelivered  AlreadyCancelled  IdempotencyMismatch  LastKey  FirstKeyNotAdmin
    |-- AccessDenied
    |   |-- Unauthorized  SignInFailed  Forbidden  HostNotAllowed  OriginNotAllowed
    |-- Busy                the same call may succeed later
        |-- RateLimited  SignInThrottled  TooManyClients  TooManyParked  Overloaded  RequestTimeout
        |-- StorageFull  StorageUnavailable  QueueUnavailable  OutcomeUnknown
    |-- StorageRefused      an operator has to correct it

Each leaf has a stable `code`; the text may change at any time. Each interface maps the classes to its own responses.
"""

from typing import ClassVar


class MqgateError(Exception):
    """An error with a stable code, a detail that names the problem and the remedy, and further members."""

    code: ClassVar[str]
    title: ClassVar[str]
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str, **members: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members


class BadInput(MqgateError):
    pass


class MalformedRequest(BadInput):
    code = "malformed_request"
    title = "The request is not valid HTTP"


class InvalidJson(BadInput):
    code = "invalid_json"
    title = "The body is not valid JSON"


class UnknownField(BadInput):
    code = "unknown_field"
    title = "Unknown member"


class InvalidValue(BadInput):
    code = "invalid_value"
    title = "Invalid value"


class EmptyBody(BadInput):
    code = "empty_body"
    title = "A message body is required"


class ReceiptInvalid(BadInput):
    code = "invalid_receipt"
    title = "The receipt was not issued for this group"


class UnsupportedByMode(BadInput):
    code = "unsupported_by_mode"
    title = "Not supported by the mode of the group"


class UnsupportedByEngine(BadInput):
    code = "unsupported_by_engine"
    title = "Not supported by the engine"


class NotSupportedYet(BadInput):
    code = "not_supported_yet"
    title = "Not supported by this version"


class TooLarge(BadInput):
    code = "too_large"
    title = "The request is too large"


class HeadersTooLarge(BadInput):
    code = "headers_too_large"
    title = "The request headers are too large"


class MethodNotAllowed(BadInput):
    code = "method_not_allowed"
    title = "Method not allowed"


class NotAcceptable(BadInput):
    code = "not_acceptable"
    title = "No acceptable response format"


class NotFound(MqgateError):
    pass


class RouteNotFound(NotFound):
    code = "route_not_found"
    title = "Route not found"


class TopicNotFound(NotFound):
    code = "topic_not_found"
    title = "The topic is not registered"


class ProducerNotFound(NotFound):
    code = "producer_not_found"
    title = "The producer is not registered"


class GroupNotFound(NotFound):
    code = "group_not_found"
    title = "The group is not registered"


class KeyNotFound(NotFound):
    code = "key_not_found"
    title = "The API key does not exist"


class AccountNotFound(NotFound):
    code = "account_not_found"
    title = "The account does not exist"


class TeamNotFound(NotFound):
    code = "team_not_found"
    title = "The team does not exist"


class ApplicationNotFound(NotFound):
    code = "application_not_found"
    title = "The application does not exist"


class QueueNotFound(NotFound):
    code = "queue_not_found"
    title = "The topic does not have this queue"


class MessageNotFound(NotFound):
    code = "message_not_found"
    title = "The topic does not contain this message"


class DeadLetterNotFound(NotFound):
    code = "dead_letter_not_found"
    title = "The group does not have this dead letter"


class AlarmRuleNotFound(NotFound):
    code = "alarm_rule_not_found"
    title = "The alarm rule does not exist"


class SilenceNotFound(NotFound):
    code = "silence_not_found"
    title = "The silence does not exist"


class ChannelNotFound(NotFound):
    code = "channel_not_found"
    title = "The channel does not exist"


class FiguresNotFound(NotFound):
    code = "figures_not_found"
    title = "No pipeline has written statistics yet"


class ClientNotFound(NotFound):
    code = "client_not_found"
    title = "The group does not have this client"


class ScheduledNotFound(NotFound):
    code = "scheduled_not_found"
    title = "The scheduled message does not exist"


class Conflict(MqgateError):
    pass


class TopicInUse(Conflict):
    code = "topic_in_use"
    title = "Producers or groups still use the topic"


class FixedSetting(Conflict):
    code = "fixed_setting"
    title = "This setting cannot be changed"


class QueuesOnlyGrow(Conflict):
    code = "queues_only_grow"
    title = "The number of queues cannot be reduced"


class AttemptMismatch(Conflict):
    code = "attempt_mismatch"
    title = "The attemptId was used with different parameters"


class RegistryChanged(Conflict):
    code = "registry_changed"
    title = "The registry was changed concurrently"
    retryable = True


class LeaseLost(Conflict):
    code = "lease_lost"
    title = "The lease was lost"


class LeaseGone(Conflict):
    code = "lease_gone"
    title = "The lease is no longer valid"


class TeamInUse(Conflict):
    code = "team_in_use"
    title = "Accounts or entries still belong to the team"


class LastAdmin(Conflict):
    code = "last_admin"
    title = "The last admin cannot be removed"


class AlreadyExists(Conflict):
    code = "already_exists"
    title = "The entry exists already"


class DuplicateApplication(Conflict):
    code = "duplicate_application"
    title = "An application of this kind is open for the entry"


class ApplicationChanged(Conflict):
    code = "application_changed"
    title = "The state of the application does not allow this"


class KeyAlreadyTaken(Conflict):
    code = "key_already_taken"
    title = "The key was already handed out"


class LastKey(Conflict):
    code = "last_key"
    title = "The last API key cannot be deleted"


class FirstKeyNotAdmin(Conflict):
    code = "first_key_not_admin"
    title = "The first API key or account must be an admin"


class AlreadyDelivered(Conflict):
    code = "already_delivered"
    title = "The message was already delivered"


class AlreadyCancelled(Conflict):
    code = "already_cancelled"
    title = "The message was already cancelled"


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"
    title = "The idempotency key was used with a different body"


class AccessDenied(MqgateError):
    pass


class Unauthorized(AccessDenied):
    code = "unauthorized"
    title = "Valid credentials are required"


class SignInFailed(AccessDenied):
    code = "sign_in_failed"
    title = "Account or password is wrong"


class Forbidden(AccessDenied):
    code = "forbidden"
    title = "The caller lacks permission"


class HostNotAllowed(AccessDenied):
    code = "host_not_allowed"
    title = "The Host header is not allowed"


class OriginNotAllowed(AccessDenied):
    code = "origin_not_allowed"
    title = "Requests from other web origins are not allowed"


class Busy(MqgateError):
    retryable = True


class RateLimited(Busy):
    code = "rate_limited"
    title = "The rate limit of the producer was reached"


class SignInThrottled(Busy):
    code = "sign_in_throttled"
    title = "Too many attempts to sign in"


class TooManyClients(Busy):
    code = "too_many_clients"
    title = "The client limit of the group was reached"


class TooManyParked(Busy):
    code = "too_many_parked"
    title = "Too many receives of this API key are parked"


class Overloaded(Busy):
    code = "overloaded"
    title = "The gateway is overloaded"


class RequestTimeout(Busy):
    code = "request_timeout"
    title = "The request did not arrive in time"


class StorageFull(Busy):
    code = "storage_full"
    title = "The store is full"


class StorageUnavailable(Busy):
    code = "storage_unavailable"
    title = "The store is unavailable"


class QueueUnavailable(Busy):
    code = "queue_unavailable"
    title = "The queue of the message key is unavailable"


class OutcomeUnknown(Busy):
    """An operation without a response. It may have been applied, so a repeat must check first."""

    code = "unknown"
    title = "The outcome is unknown"


class StorageRefused(MqgateError):
    code = "storage_refused"
    title = "The store denied the operation"
