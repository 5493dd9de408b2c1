"""What is taken from the texts of properties, against how the gateway reads the same record."""

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


def _by_the_gateway(text: bytes) -> tuple[str, str | None, str | None, dict[str, str] | None]:
    host = b"\x7f\x00\x00\x01"
    record = Record("t", b"", property_text.decode_bytes(text), 0, 0, 5, 77, 0, 0, 0, host, 10911, 0, 0)
    message = message_of("t", "q", record)
    message_id = message.id if "UNIQ_KEY" in property_text.decode_bytes(text) else ""
    return message_id, message.key, message.tag, dict(message.properties) or None


@given(st.lists(_pairs, max_size=6), st.booleans())
def test_every_text_is_read_as_the_gateway_reads_it(many: list[list[tuple[str, str]]], is_ended: bool) -> None:
    """Whether Spark reads through a gateway or not, and whatever producers write, must make no difference."""
    texts = ["\x02".join(f"{name}\x01{value}" for name, value in pairs) for pairs in many]
    encoded = [(f"{text}\x02" if is_ended else text).encode() for text in texts]

    # The second time the orders of names are known.
    reader = PropertyReader()
    first, again = reader.read(encoded), reader.read(encoded)

    assert first == again
    told = [(found[0] or "", *found[1:3], json.loads(found[3]) if found[3] else None) for found in first]
    expected = [_by_the_gateway(text) for text in encoded]
    assert [each[1:] for each in told] == [each[1:] for each in expected]
    assert [each[0] for each in told] == [each[0] for each in expected]


@pytest.mark.parametrize(
    "text", [b"", b"\x02", b"\x01", b"a", b"\x01\x02", b"a\x01", b"\xff\x01\xfe\x02", b"a\x01b\x01c\x02d\x02"]
)
def test_a_broken_text_stops_nobody(text: bytes) -> None:
    """A producer may write anything into a batch; its queue must go on."""
    (found,) = PropertyReader().read([text])

    assert (found[3] is None or json.loads(found[3])) == (_by_the_gateway(text)[3] or True)


def test_names_that_never_repeat_do_not_fill_the_memory() -> None:
    """What is known of orders of names is forgotten, not gathered for ever."""
    reader = PropertyReader()

    found = reader.read([f"n{number}\x01v\x02".encode() for number in range(5_000)])

    assert found[4_999][3] == '{"n4999":"v"}'
    assert len(reader._plans) <= 1_000
