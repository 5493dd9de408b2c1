"""A message in mqgate's words and in RocketMQ's.

The id travels as UNIQ_KEY, the key as KEYS, the tag as TAGS: Java clients see what they expect, and theirs is seen so.
RocketMQ's own properties share one name space with the users'; a user's property of such a name goes under a prefix.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from mqgate.core.message import NO_PROPERTIES, Draft, Message
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.pulled_page import PulledPage
from mqgate.rocketmq.remoting.record import Record
from mqgate.rocketmq.user_properties import stored_name, user_name

__all__ = ["message_of", "messages_of", "properties_of"]

_ID, _END = b"UNIQ_KEY\x01", b"\x02"
_ID_LINE = b"\n" + _ID


def properties_of(draft: Draft) -> dict[str, str]:
    """What RocketMQ keeps beside the body."""
    found = {"UNIQ_KEY": draft.id}
    if draft.key is not None:
        found["KEYS"] = draft.key
    if draft.tag is not None:
        found["TAGS"] = draft.tag
    for name, value in draft.properties.items():
        found[stored_name(name)] = value
    return found


class _Described(NamedTuple):
    """What a message's properties say."""

    id: str | None
    key: str | None
    tag: str | None
    properties: Mapping[str, str]


def message_of(topic: str, queue: str, record: Record) -> Message:
    """A stored record as mqgate's consumers see it."""
    found = _described(record.properties)
    message_id = found.id or record.offset_id
    return Message(message_id, topic, queue, record.queue_offset, record.body, *found[1:], record.stored_ms)


def messages_of(topic: str, queue: str, page: PulledPage) -> list[Message]:
    """The same of many at once, by column. Mostly they differ in their ids alone: what else there is, is remembered."""
    if not len(page):
        return []
    ids, others = _ids_first(page.texts) or zip(*map(_without_id, page.texts), strict=True)
    known = {text: _remembered(text) for text in set(others)}
    again, keys, tags, properties = zip(*map(known.__getitem__, others), strict=True)
    if any(again):
        ids = [named or own for named, own in zip(again, ids, strict=True)]
    if not all(ids):
        ids = [each or page.offset_id(index) for index, each in enumerate(ids)]
    where = repeat(topic), repeat(queue), page.offsets
    rows = zip(ids, *where, page.bodies, keys, tags, properties, page.stored_ms)  # noqa: B905 - repeat has no end
    # Not by its fields' names: that would be a tenth of the whole.
    return list(map(tuple.__new__, repeat(Message), rows))


def _ids_first(texts: Sequence[bytes]) -> tuple[Sequence[str], Sequence[bytes]] | None:
    """The ids in texts of properties, and the texts without them; None unless all begin with it, as we write them."""
    bounds, _, others = zip(*map(bytes.partition, texts, repeat(_END)), strict=True)
    # As lines, because one text is checked, decoded and cut in a tenth of the time that many are.
    lines = b"\n".join((b"", *bounds))
    if not lines.count(b"\n") == lines.count(_ID_LINE) == len(texts):
        return None
    return lines.decode("utf-8", "replace").split(_ID_LINE.decode())[1:], others


def _without_id(text: bytes) -> tuple[str, bytes]:
    """The id in a text of properties, if there is one, and the text without it."""
    before, mark, behind = text.partition(_ID)
    if not mark or (before and not before.endswith(_END)):
        return "", text
    own, _, behind = behind.partition(_END)
    return own.decode("utf-8", "replace"), before + behind


@lru_cache(maxsize=1_024)
def _remembered(text: bytes) -> _Described:
    return _described(property_text.decode_bytes(text))


def _described(properties: Mapping[str, str]) -> _Described:
    named = ((user_name(name), value) for name, value in properties.items())
    users = {name: value for name, value in named if name is not None} if properties else NO_PROPERTIES
    return _Described(properties.get("UNIQ_KEY"), properties.get("KEYS"), properties.get("TAGS"), users)
