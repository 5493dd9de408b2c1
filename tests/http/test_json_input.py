"""Strict JSON: batches are counted before their items are decoded, and errors name the member."""

import msgspec
import pytest
from msgspec import Raw

from mqgate.core.errors import InvalidJson, InvalidValue, MqgateError, UnknownField
from mqgate.http.json_input import ItemSplitter, decode, is_too_deep


class _Inner(msgspec.Struct, forbid_unknown_fields=True):
    number: int


class _Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: _Inner | None = None
    items: list[_Inner] = []


_decoder = msgspec.json.Decoder(_Outer)


@pytest.mark.parametrize(
    ("raw", "kind", "field"),
    [
        (b'{"colour": 1}', UnknownField, "colour"),
        (b'{"inner": {"number": 1, "colour": 1}}', UnknownField, "inner.colour"),
        (b'{"items": [{"number": 1}, {}]}', InvalidValue, "items[1].number"),
        (b'{"inner": {"number": "x"}}', InvalidValue, "inner.number"),
        (b"[]", InvalidValue, ""),
    ],
)
def test_an_error_names_the_member(raw: bytes, kind: type[MqgateError], field: str) -> None:
    """A caller with a large document could not find it otherwise."""
    with pytest.raises(kind) as raised:
        decode(raw, _decoder)

    assert raised.value.members["field"] == field


def test_json_that_is_too_deep_is_recognised() -> None:
    """A batch of it can be split; other broken JSON cannot."""
    with pytest.raises(InvalidJson) as deep:
        decode(b'{"inner": ' + b"[" * 100_000, msgspec.json.Decoder(dict[str, Raw]))
    with pytest.raises(InvalidJson) as broken:
        decode(b'{"inner": ', _decoder)

    assert is_too_deep(deep.value)
    assert not is_too_deep(broken.value)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_within_its_limit_is_split(count: int) -> None:
    """Each item is the text that was sent, whatever is in it."""
    items = [b'{"a": [1, "],["]}', b'"text"', b"17"][:count]

    assert ItemSplitter("messages", 3).split(Raw(b"[" + b" , ".join(items) + b"]")) == items


@pytest.mark.parametrize("raw", [b"[]", b"[1,2,3,4]", b"{}", b"null", b'"text"'])
def test_anything_else_is_refused_with_the_limit(raw: bytes) -> None:
    """The caller learns how many items are allowed."""
    with pytest.raises(InvalidValue) as raised:
        ItemSplitter("messages", 3).split(Raw(raw))

    assert raised.value.members == {"field": "messages", "limit": 3}
