"""Requests whose author meant an envelope: refused with the sentence that corrects them."""

import msgspec
from msgspec import UNSET

from mqgate.core.errors import InvalidValue, MqgateError, UnknownField
from mqgate.http.native.envelope import Envelope

__all__ = ["advise", "refuse_envelope_as_form"]

FORM = b"application/x-www-form-urlencoded"
_MEMBERS = (b'"body"', b'"bodyBase64"', b'"messages"')


class _PublishIn(Envelope, rename="camel", forbid_unknown_fields=True):
    # Not decoded: it may have millions of items.
    messages: msgspec.Raw | msgspec.UnsetType = UNSET


_publish_in = msgspec.json.Decoder(_PublishIn)


def refuse_envelope_as_form(body: bytes) -> None:
    """Raise InvalidValue if a form body is an envelope or a batch.

    curl sends this content type if none is given, and the JSON of the envelope would be stored as the message.
    """
    if body[:1] != b"{":
        return
    try:
        given = _publish_in.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return
    is_batch = given.messages is not UNSET and bytes(given.messages)[:1] == b"["
    if given.body is UNSET and given.body_base64 is UNSET and not is_batch:
        return
    raise InvalidValue(
        "The body is a JSON envelope, but the content type is that of a form. Send Content-Type: application/json, or "
        "application/octet-stream to publish these bytes as they are.",
        field="Content-Type",
    )


def advise(error: UnknownField, body: bytes) -> MqgateError:
    """Return the error of an unknown member. For an object that is no envelope, it names the fix."""
    if any(member in body for member in _MEMBERS):
        return error
    field = error.members.get("field", "")
    return UnknownField(
        f'{field} is no member of an envelope. To publish this object, send {{"body": {{...}}}} with the object as '
        "the body, or another content type than application/json.",
        field=field,
    )
