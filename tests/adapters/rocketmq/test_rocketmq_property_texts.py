"""The property reader gives the same result as the translation of single records."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqgate.adapters.rocketmq.translate import message_of
from mqgate.rocketmq.property_texts import PropertyReader
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.record import Record

_names = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "CLUSTER", "WAIT", "mqgate_p.KEYS", "a", "b%s", 'q"', "ü", ""])
_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_pairs = st.lists(st.tuples(_names, _values), max_size=5)


def _translated(text: bytes) -> tuple[str, str | None, str | None, dict[str, str] | None]:
    host = b"\x7f\x00\x00\x01"
    record = Record("t", b"", property_text.decode_bytes(text), 0, 0, 5, 77, 0, 0, 0, host, 10911, 0, 0)
    message = message_of("t", "q", record)
    message_id = message.id if "UNIQ_KEY" in property_text.decode_bytes(text) else ""
    return message_id, message.key, message.tag, dict(message.properties) or None


@given(st.lists(_pairs, max_size=6), st.booleans())
def test_every_property_text_is_read_like_a_single_record(many: list[list[tuple[str, str]]], is_ended: bool) -> None:
    """Spark must get the same values from brokers and from a gateway, for all property texts."""
    texts = ["\x02".join(f"{name}\x01{value}" for name, value in pairs) for pairs in many]
    encoded = [(f"{text}\x02" if is_ended else text).encode() for text in texts]

    # The second read uses the cached plans.
    reader = PropertyReader()
    first, again = reader.read(encoded), reader.read(encoded)

    assert first == again
    read = [(found[0] or "", *found[1:3], json.loads(found[3]) if found[3] else None) for found in first]
    expected = [_translated(text) for text in encoded]
    assert [values[1:] for values in read] == [values[1:] for values in expected]
    assert [values[0] for values in read] == [values[0] for values in expected]


@pytest.mark.parametrize(
    "text", [b"", b"\x02", b"\x01", b"a", b"\x01\x02", b"a\x01", b"\xff\x01\xfe\x02", b"a\x01b\x01c\x02d\x02"]
)
def test_a_malformed_text_does_not_block_a_queue(text: bytes) -> None:
    """A producer may write any bytes into a batch."""
    (found,) = PropertyReader().read([text])

    assert (found[3] is None or json.loads(found[3])) == (_translated(text)[3] or True)


def test_names_that_never_repeat_use_limited_memory() -> None:
    """The cache of plans is limited."""
    reader = PropertyReader()

    found = reader.read([f"n{number}\x01v\x02".encode() for number in range(5_000)])

    assert found[4_999][3] == '{"n4999":"v"}'
    assert len(reader._plans) <= 1_000
