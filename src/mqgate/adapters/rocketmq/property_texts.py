"""Ids, keys, tags and the users' properties of many records, from the texts that RocketMQ keeps them in.

Most of a record's cost lies here. But the messages of a topic mostly have the same properties in the same order, so
what to take from where is found out once for each order of names; after that a text is split, and its pieces are taken.
"""

from collections.abc import Callable, Iterable
from json.encoder import encode_basestring as quoted
from operator import itemgetter
from typing import NamedTuple

from mqgate.rocketmq.remoting import properties as property_text

__all__ = ["Described", "PropertyReader"]

_BETWEEN, _END = "\x01", "\x02"
_OTHERS = bytes(set(range(256)) - {1, 2})
_IN_TURN = b"\x01\x02"
_MOST_PLANS = 1_000
_NOWHERE = -1
# Id, key, tag, and the users' properties as the text of a JSON object.
Described = tuple[str | None, str | None, str | None, str | None]


class _Plan(NamedTuple):
    """Takes id, key, tag and the users' values from the pieces of a text; `form` is for the latter."""

    take: Callable[[list[str]], tuple[str, ...]]
    form: str


class PropertyReader:
    """`users_name`: the name that a user gave a property; None if it is RocketMQ's own. `is_all`: users' are wanted."""

    def __init__(self, users_name: Callable[[str], str | None], *, is_all: bool = True) -> None:
        self._users_name = users_name if is_all else lambda _: None
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def read(self, texts: Iterable[bytes]) -> list[Described]:
        plans = self._plans
        found: list[Described] = []
        for text in texts:
            pieces = text.decode("utf-8", "replace").replace(_END, _BETWEEN).split(_BETWEEN)
            plan = plans.get(tuple(pieces[::2])) or self._planned(text, pieces)
            if plan is None:
                found.append(self._described(text))
                continue
            # What stands nowhere is taken from the end.
            pieces.append("")
            take, form = plan
            taken = take(pieces)
            users = taken[3:]
            if "" in users:
                # One without a value counts as none.
                found.append(self._described(text))
                continue
            described = form % tuple(map(quoted, users)) if users else None
            found.append((taken[0] or None, taken[1] or None, taken[2] or None, described))
        return found

    def _planned(self, text: bytes, pieces: list[str]) -> _Plan | None:
        """The plan for a text's names; None if it is not as it should be, with a name twice or marks not in turn."""
        names = tuple(pieces[::2])
        places = {name: 2 * index + 1 for index, name in enumerate(names) if name}
        marks = text.translate(None, _OTHERS)
        if len(places) != len(marks) - len(marks) // 2 or marks != (_IN_TURN * len(places))[: len(marks)]:
            return None
        users = {name: at for own, at in places.items() if (name := self._users_name(own)) is not None}
        form = ",".join(quoted(name).replace("%", "%%") + ":%s" for name in users)
        taken = (places.get(name, _NOWHERE) for name in ("UNIQ_KEY", "KEYS", "TAGS"))
        plan = _Plan(itemgetter(*taken, *users.values()), f"{{{form}}}")
        if len(self._plans) >= _MOST_PLANS:
            # Names that never repeat; the usual ones are soon back.
            self._plans.clear()
        self._plans[names] = plan
        return plan

    def _described(self, text: bytes) -> Described:
        """The same for a text that no plan is good for."""
        found = property_text.decode_bytes(text)
        named = ((self._users_name(name), value) for name, value in found.items())
        users = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in named if name is not None)
        return found.get("UNIQ_KEY"), found.get("KEYS"), found.get("TAGS"), f"{{{users}}}" if users else None
