"""Translates between messages of mqgate and records of RocketMQ."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat

from mqgate.core.message import Draft, Message
from mqgate.core.message_page import MessagePage
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.pulled_page import PulledPage
from mqgate.rocketmq.remoting.record import Record
from mqgate.rocketmq.user_properties import ID, KEY, TAG, Described, described, stored_name

__all__ = ["message_of", "messages_of", "properties_of"]

_ID, _END = f"{ID}\x01".encode(), b"\x02"
_ID_LINE = b"\n" + _ID


def properties_of(draft: Draft) -> dict[str, str]:
    """Return the properties that are stored with a message."""
    found = {ID: draft.id}
    if draft.key is not None:
        found[KEY] = draft.key
    if draft.tag is not None:
        found[TAG] = draft.tag
    for name, value in draft.properties.items():
        found[stored_name(name)] = value
    return found


def message_of(topic: str, queue: str, record: Record) -> Message:
    """Return a stored record as a message."""
    found = described(record.properties)
    message_id = found.id or record.offset_id
    return Message(message_id, topic, queue, record.queue_offset, record.body, *found[1:], record.stored_ms)


def messages_of(topic: str, queue: str, page: PulledPage) -> MessagePage:
    """Return all messages of a page. Most differ in their ids only, so the other properties are cached."""
    if not len(page):
        return MessagePage.of(())
    ids, others = _ids_first(page.texts) or zip(*map(_without_id, page.texts), strict=True)
    known = {text: _described_text(text) for text in set(others)}
    repeated_ids, keys, tags, properties = zip(*map(known.__getitem__, others), strict=True)
    if any(repeated_ids):
        ids = [repeated or first for repeated, first in zip(repeated_ids, ids, strict=True)]
    if not all(ids):
        ids = [found or page.offset_id(index) for index, found in enumerate(ids)]
    return MessagePage(topic, queue, ids, page.offsets, page.bodies, keys, tags, properties, page.stored_ms)


def _ids_first(texts: Sequence[bytes]) -> tuple[Sequence[str], Sequence[bytes]] | None:
    """Return the ids in property texts and the texts without them; None unless each text starts with its id."""
    heads, _, others = zip(*map(bytes.partition, texts, repeat(_END)), strict=True)
    # One joined text is checked, decoded and split in a tenth of the time that many texts take.
    lines = b"\n".join((b"", *heads))
    if not lines.count(b"\n") == lines.count(_ID_LINE) == len(texts):
        return None
    return lines.decode("utf-8", "replace").split(_ID_LINE.decode())[1:], others


def _without_id(text: bytes) -> tuple[str, bytes]:
    """Return the id in a property text, or "", and the text without it."""
    before, separator, after = text.partition(_ID)
    if not separator or (before and not before.endswith(_END)):
        return "", text
    message_id, _, after = after.partition(_END)
    return message_id.decode("utf-8", "replace"), before + after


@lru_cache(maxsize=1_024)
def _described_text(text: bytes) -> Described:
    return described(property_text.decode_bytes(text))
