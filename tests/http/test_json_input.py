"""JSON in: what the quick look lets pass is what the careful one does."""

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mqgate.core.errors import MqgateError
from mqgate.http.json_input import decode, decode_flat

_TEXTS = st.sampled_from(['"max"', '"max" :', '"m\\u0061x"', '":max"', '"\\""', '"é"', '"', "7", "[]", "null"])
_NAMES = st.sampled_from(['"max"', '"ack"', '"m\\u0061x"', '"ack" ', '"other"'])
_VALUES = st.one_of(_TEXTS, st.lists(_TEXTS, max_size=3).map(lambda some: f"[{','.join(some)}]"))
_MEMBERS = st.lists(st.tuples(_NAMES, _VALUES).map(":".join), max_size=3)


class _Wish(msgspec.Struct, forbid_unknown_fields=True):
    max: int | str | None = None
    ack: list[str] = []


_decoder = msgspec.json.Decoder(_Wish)


@given(_MEMBERS)
def test_a_flat_structure_is_read_as_any_other(members: list[str]) -> None:
    """One of two members of the same name would be lost silently, however they are written."""
    raw = f"{{{','.join(members)}}}".encode()

    assert _outcome(decode_flat, raw) == _outcome(decode, raw)


def _outcome(way: Callable[[bytes, msgspec.json.Decoder[_Wish]], _Wish], raw: bytes) -> object:
    try:
        return way(raw, _decoder)
    except MqgateError as error:
        return type(error), error.detail
