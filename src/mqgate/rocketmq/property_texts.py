"""Ids, keys, tags and user properties of many records, read from their property texts.

This is the most expensive part of decoding a record. The messages of a topic mostly have the same property names in
the same order, so the positions of the values are computed once per sequence of names and then reused.
"""

from collections.abc import Callable, Iterable
from json.encoder import encode_basestring as quoted
from operator import itemgetter
from typing import NamedTuple

from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.user_properties import ID, KEY, TAG, described, user_name

__all__ = ["DescribedText", "PropertyReader"]

_BETWEEN, _END = "\x01", "\x02"
_NO_SEPARATORS = bytes(set(range(256)) - {1, 2})
_SEPARATOR_PAIR = b"\x01\x02"
_MAX_PLANS = 1_000
_ABSENT = -1
# Id, key, tag, and the user properties as the text of a JSON object.
DescribedText = tuple[str | None, str | None, str | None, str | None]


class _Plan(NamedTuple):
    """The positions of id, key, tag and user values in a split text, and the JSON template of the user values."""

    take: Callable[[list[str]], tuple[str, ...]]
    template: str


class PropertyReader:
    """A decoder of property texts. It skips user properties unless `with_user_properties` is set."""

    def __init__(self, *, with_user_properties: bool = True) -> None:
        self._with_user_properties = with_user_properties
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def read(self, texts: Iterable[bytes]) -> list[DescribedText]:
        plans = self._plans
        found: list[DescribedText] = []
        for text in texts:
            pieces = text.decode("utf-8", "replace").replace(_END, _BETWEEN).split(_BETWEEN)
            plan = plans.get(tuple(pieces[::2])) or self._make_plan(text, pieces)
            if plan is None:
                found.append(self._describe(text))
                continue
            # The plan reads absent values from index -1.
            pieces.append("")
            take, template = plan
            taken = take(pieces)
            user_values = taken[3:]
            if "" in user_values:
                # A property without a value is omitted.
                found.append(self._describe(text))
                continue
            user_text = template % tuple(map(quoted, user_values)) if user_values else None
            found.append((taken[0] or None, taken[1] or None, taken[2] or None, user_text))
        return found

    def _make_plan(self, text: bytes, pieces: list[str]) -> _Plan | None:
        """Return the plan for the names of a text; None if a name repeats or the separators do not alternate."""
        names = tuple(pieces[::2])
        positions = {name: 2 * index + 1 for index, name in enumerate(names) if name}
        separators = text.translate(None, _NO_SEPARATORS)
        if len(positions) != len(separators) - len(separators) // 2:
            return None
        if separators != (_SEPARATOR_PAIR * len(positions))[: len(separators)]:
            return None
        stored_names = positions if self._with_user_properties else ()
        users = {name: positions[stored] for stored in stored_names if (name := user_name(stored)) is not None}
        template = ",".join(quoted(name).replace("%", "%%") + ":%s" for name in users)
        taken = (positions.get(name, _ABSENT) for name in (ID, KEY, TAG))
        plan = _Plan(itemgetter(*taken, *users.values()), f"{{{template}}}")
        if len(self._plans) >= _MAX_PLANS:
            # Names that never repeat would grow the cache without limit; frequent plans are rebuilt soon.
            self._plans.clear()
        self._plans[names] = plan
        return plan

    def _describe(self, text: bytes) -> DescribedText:
        """Decode a text without a plan."""
        found = described(property_text.decode_bytes(text))
        users = found.properties if self._with_user_properties else {}
        described_users = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in users.items())
        return *found[:3], f"{{{described_users}}}" if described_users else None
