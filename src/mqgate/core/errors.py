"""Every fact that mqgate reports as an error.

    MqgateError
    |-- BadInput            the caller can mend it
    |   |-- MalformedRequest  InvalidJson  UnknownField  InvalidValue  EmptyBody  ReceiptInvalid
    |   |-- UnsupportedByMode  UnsupportedByEngine  NotSupportedYet
    |   |-- TooLarge  HeadersTooLarge  MethodNotAllowed  NotAcceptable
    |-- NotFound
    |   |-- RouteNotFound  TopicNotFound  ProducerNotFound  GroupNotFound  KeyNotFound
    |   |-- QueueNotFound  MessageNotFound  DeadLetterNotFound  ClientNotFound  ScheduledNotFound  FiguresNotFound
    |-- Conflict
    |   |-- TopicInUse  FixedSetting  QueuesOnlyGrow  AttemptMismatch  RegistryChanged
    |   |-- LeaseLost  LeaseGone  AlreadyDelivered  AlreadyCancelled  IdempotencyMismatch  LastKey  FirstKeyNotAdmin
    |-- AccessDenied
    |   |-- Unauthorized  Forbidden  HostNotAllowed  OriginNotAllowed
    |-- Busy                the same call may succeed later
        |-- RateLimited  TooManyClients  TooManyParked  Overloaded  Stopping  RequestTimeout
        |-- StorageFull  StorageUnavailable  QueueUnavailable  OutcomeUnknown
    |-- StorageRefused      an operator has to mend it

A leaf has a stable `code`; its text may improve any day. Which HTTP status it becomes is the surface's business.
"""

from typing import ClassVar


class MqgateError(Exception):
    """A fact to report: a stable code, a sentence that says what to do, members that help."""

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
    title = "A member is not known here"


class InvalidValue(BadInput):
    code = "invalid_value"
    title = "A value is not acceptable"


class EmptyBody(BadInput):
    code = "empty_body"
    title = "A message needs a body"


class ReceiptInvalid(BadInput):
    code = "invalid_receipt"
    title = "The receipt was not issued for this group"


class UnsupportedByMode(BadInput):
    code = "unsupported_by_mode"
    title = "The group's mode does not have this"


class UnsupportedByEngine(BadInput):
    code = "unsupported_by_engine"
    title = "The engine does not have this"


class NotSupportedYet(BadInput):
    code = "not_supported_yet"
    title = "This version does not have this yet"


class TooLarge(BadInput):
    code = "too_large"
    title = "The request is too large"


class HeadersTooLarge(BadInput):
    code = "headers_too_large"
    title = "The request's headers are too large"


class MethodNotAllowed(BadInput):
    code = "method_not_allowed"
    title = "This resource does not take that method"


class NotAcceptable(BadInput):
    code = "not_acceptable"
    title = "The answer has no such form"


class NotFound(MqgateError):
    pass


class RouteNotFound(NotFound):
    code = "route_not_found"
    title = "There is nothing at this address"


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
    title = "There is no such key"


class QueueNotFound(NotFound):
    code = "queue_not_found"
    title = "The topic has no such queue"


class MessageNotFound(NotFound):
    code = "message_not_found"
    title = "The topic holds no such message"


class DeadLetterNotFound(NotFound):
    code = "dead_letter_not_found"
    title = "The group has no such dead letter"


class FiguresNotFound(NotFound):
    code = "figures_not_found"
    title = "No pipeline has written figures yet"


class ClientNotFound(NotFound):
    code = "client_not_found"
    title = "The group does not know this client"


class ScheduledNotFound(NotFound):
    code = "scheduled_not_found"
    title = "There is no such scheduled message"


class Conflict(MqgateError):
    pass


class TopicInUse(Conflict):
    code = "topic_in_use"
    title = "Producers or groups still use the topic"


class FixedSetting(Conflict):
    code = "fixed_setting"
    title = "This setting is decided once"


class QueuesOnlyGrow(Conflict):
    code = "queues_only_grow"
    title = "A topic cannot lose queues"


class AttemptMismatch(Conflict):
    code = "attempt_mismatch"
    title = "The attemptId was used with other parameters"


class RegistryChanged(Conflict):
    code = "registry_changed"
    title = "Somebody else changed the registry at the same moment"
    retryable = True


class LeaseLost(Conflict):
    code = "lease_lost"
    title = "Somebody else holds or finished this"


class LeaseGone(Conflict):
    code = "lease_gone"
    title = "This lease no longer means anything"


class LastKey(Conflict):
    code = "last_key"
    title = "Without this key everybody would get in"


class FirstKeyNotAdmin(Conflict):
    code = "first_key_not_admin"
    title = "The first key must be an admin key"


class AlreadyDelivered(Conflict):
    code = "already_delivered"
    title = "The message was delivered before"


class AlreadyCancelled(Conflict):
    code = "already_cancelled"
    title = "The message was cancelled before"


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"
    title = "The idempotency key was used with another body"


class AccessDenied(MqgateError):
    pass


class Unauthorized(AccessDenied):
    code = "unauthorized"
    title = "A valid key is needed"


class Forbidden(AccessDenied):
    code = "forbidden"
    title = "The key does not allow this"


class HostNotAllowed(AccessDenied):
    code = "host_not_allowed"
    title = "The Host header is not allowed"


class OriginNotAllowed(AccessDenied):
    code = "origin_not_allowed"
    title = "Requests of other web origins are refused"


class Busy(MqgateError):
    retryable = True


class RateLimited(Busy):
    code = "rate_limited"
    title = "The producer's rate limit is reached"


class TooManyClients(Busy):
    code = "too_many_clients"
    title = "The group has as many clients as it may"


class TooManyParked(Busy):
    code = "too_many_parked"
    title = "Too many receives of this key are parked"


class Overloaded(Busy):
    code = "overloaded"
    title = "This gateway has as much work as it may hold"


class Stopping(Busy):
    code = "stopping"
    title = "This gateway is stopping"


class RequestTimeout(Busy):
    code = "request_timeout"
    title = "The request did not arrive in time"


class StorageFull(Busy):
    code = "storage_full"
    title = "The store is full"


class StorageUnavailable(Busy):
    code = "storage_unavailable"
    title = "The store does not answer"


class QueueUnavailable(Busy):
    code = "queue_unavailable"
    title = "The key's queue is not available"


class OutcomeUnknown(Busy):
    """It was sent and nobody answered: it may or may not be done, and a repeat must look first."""

    code = "unknown"
    title = "It is not known whether this was done"


class StorageRefused(MqgateError):
    code = "storage_refused"
    title = "The store does not let the gateway do this"
