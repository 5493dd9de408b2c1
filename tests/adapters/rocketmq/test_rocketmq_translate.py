"""Translation of records to messages: pages and single records give the same result for all properties."""

from hypothesis import given
from hypothesis import strategies as st

from mqgate.adapters.rocketmq.translate import message_of, messages_of
from mqgate.core.names import OWN_PREFIX
from mqgate.rocketmq.remoting import properties as property_text
from mqgate.rocketmq.remoting.pulled_page import decode_page
from mqgate.rocketmq.remoting.record import Record, decode_raw, encode_record
from mqgate.rocketmq.user_properties import ESCAPE_PREFIX

_PLAIN = Record("orders", b"body", {"TAGS": "paid"}, 3, 0, 42, 4096, 0, 0, 1_700_000_000, b"\x7f\0\0\1", 10911, 0, 0)
# Reserved names, names that end like them, separators in any order, and invalid UTF-8.
_PIECES = [b"UNIQ_KEY", b"MY_UNIQ_KEY", b"KEYS", b"TAGS", b"MSG_REGION", b"mqgate_p.KEYS", b"colour", b"\x01", b"\x02"]
_SEPARATORS = [b"\x01", b"\x02", b"\n", b"7", b"\xff", b"UNIQ_KEY\x018\x02"]
_TEXTS = st.lists(st.sampled_from([*_PIECES, *_SEPARATORS]), max_size=14).map(b"".join)
# Like most texts: the id first.
_USUAL = st.tuples(st.just(b"UNIQ_KEY\x01"), _TEXTS).map(b"".join)


@given(st.one_of(st.lists(_TEXTS, min_size=1, max_size=5), st.lists(_USUAL, min_size=1, max_size=5)))
def test_a_page_and_single_records_are_translated_alike(texts: list[bytes]) -> None:
    """The fast path for pages must not change an id, key, tag or property."""
    stored = b"".join(_stored(index, text) for index, text in enumerate(texts))

    found = messages_of("orders", "broker-a:3", decode_page(stored))

    one_by_one = [raw._replace(properties=property_text.decode_bytes(raw.properties)) for raw in decode_raw(stored)]
    assert found == [message_of("orders", "broker-a:3", record) for record in one_by_one]


def test_a_message_without_an_id_gets_its_offset_id() -> None:
    """Old producers send no id, and every message needs a stable one."""
    (message,) = messages_of("orders", "broker-a:3", decode_page(encode_record(_PLAIN)))

    assert message.id == "7F00000100002A9F0000000000001000"
    assert message.tag == "paid"


def test_escaped_property_names_are_reserved_for_mqgate() -> None:
    """The client does not import the core, so its prefix could diverge from the prefix that users may not use."""
    assert ESCAPE_PREFIX.startswith(OWN_PREFIX)


def _stored(index: int, text: bytes) -> bytes:
    """Return a stored message with these bytes as its properties."""
    whole = encode_record(_PLAIN._replace(queue_offset=index, stored_ms=index // 2, properties={}))
    total = len(whole) + len(text)
    return total.to_bytes(4) + whole[4:-2] + len(text).to_bytes(2) + text
