"""The text encoding of properties and its limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.rocketmq.remoting import properties

_words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)


def test_properties_are_encoded_as_the_protocol_specifies() -> None:
    """Brokers index and filter by these properties."""
    assert properties.encode({"TAGS": "paid", "KEYS": "k1"}) == "TAGS\x01paid\x02KEYS\x01k1\x02"


@given(st.dictionaries(_words, _words, max_size=8))
def test_properties_survive_a_round_trip(given_properties: dict[str, str]) -> None:
    """Any text without the two separators may be a name or a value."""
    assert properties.decode(properties.encode(given_properties)) == given_properties
    assert properties.decode_bytes(properties.encode(given_properties).encode()) == given_properties


@pytest.mark.parametrize("wrong", [{"a\x01": "b"}, {"a": "b\x02"}, {"": "b"}, {"a": ""}], ids=repr)
def test_properties_that_cannot_be_encoded_are_refused(wrong: dict[str, str]) -> None:
    """Otherwise they would be decoded as other properties."""
    with pytest.raises(ValueError, match="properties"):
        properties.encode(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01\x02c\x01d\x02", {"c": "d"}),
        ("\x01b\x02c\x01d\x02", {"c": "d"}),
        ("alone\x02c\x01d\x02", {"c": "d"}),
        ("a\x01b\x01c\x02d\x01e\x02", {"a": "b\x01c", "d": "e"}),
        ("\x02\x02", {}),
    ],
    ids=repr,
)
def test_irregular_texts_are_decoded_as_in_java(text: str, found: dict[str, str]) -> None:
    """Java producers check nothing, and one malformed property must not hide the others."""
    assert properties.decode(text) == found


def test_invalid_utf8_is_replaced() -> None:
    """A broker does not check the properties in a batch. They must not block the queue."""
    assert properties.decode_bytes(b"a\x01\xff\x02b\x01c\x02") == {"a": "\ufffd", "b": "c"}


@given(st.binary(max_size=100))
def test_any_bytes_are_properties(data: bytes) -> None:
    """Decoding never fails, and names and values are never empty."""
    found = properties.decode_bytes(data)

    assert all(found)
    assert all(found.values())
