"""A stream is decoded however it is split, and a malformed stream is refused early."""

import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire_bytes import BINARY_RESPONSE, REQUEST, RESPONSE

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.command import Command, encode
from mqgate.rocketmq.remoting.frame import MAX_FRAME_BYTES, FrameReader

_STREAM = REQUEST + RESPONSE + BINARY_RESPONSE
_BROKEN = b"\x00\x00\x00\x05\x00\x00\x00\x01["


def _commands() -> list[Command]:
    return FrameReader().feed(_STREAM)


def _outcome(pieces: list[bytes]) -> tuple[list[Command], bool]:
    """Return all commands of a stream, and whether it is malformed."""
    reader, found = FrameReader(), []
    try:
        for piece in pieces:
            found += reader.feed(piece)
    except RemoteProtocolError:
        assert reader.is_broken
    return found, reader.is_broken


def test_a_stream_may_be_split_anywhere() -> None:
    """TCP does not preserve frames."""
    for cut in range(len(_STREAM) + 1):
        reader = FrameReader()

        found = reader.feed(_STREAM[:cut]) + reader.feed(_STREAM[cut:])

        assert found == _commands(), cut
        assert reader.is_between_frames, cut


def test_a_stream_may_arrive_byte_by_byte() -> None:
    """Each command is returned with its last byte."""
    reader, found = FrameReader(), []
    ends = {len(REQUEST), len(REQUEST + RESPONSE), len(_STREAM)}

    for at in range(len(_STREAM)):
        found += reader.feed(_STREAM[at : at + 1])
        assert reader.is_between_frames == (at + 1 in ends)

    assert found == _commands()


@given(st.lists(st.binary(max_size=3000), max_size=8), st.data())
def test_bodies_survive_any_split(bodies: list[bytes], data: st.DataObject) -> None:
    """Frames of any length may arrive in pieces of any length."""
    stream = b"".join(encode(Command(0, index, body=body)) for index, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))

    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert [command.body for command in _outcome(pieces)[0]] == bodies


@pytest.mark.parametrize(
    "prefix",
    [
        struct.pack(">II", 0xFFFFFFFF, 0),
        struct.pack(">ii", -1, 10),
        struct.pack(">II", MAX_FRAME_BYTES - 3, 0),
        struct.pack(">II", 3, 0),
        struct.pack(">II", 0, 0),
        struct.pack(">II", 20, 17),
        struct.pack(">II", 20, 0xFFFFFF),
        struct.pack(">II", 4, 2 << 24),
        struct.pack(">II", 4, 0xFF << 24),
    ],
    ids=[
        "huge",
        "negative",
        "one-too-many",
        "shorter-than-itself",
        "zero",
        "header-longer",
        "header-huge",
        "type-2",
        "type-255",
    ],
)
def test_an_impossible_frame_is_refused_by_its_first_eight_bytes(prefix: bytes) -> None:
    """Nothing is buffered for a length that no server may send."""
    with pytest.raises(RemoteProtocolError):
        FrameReader().feed(prefix)


def test_the_largest_frame_of_servers_is_accepted() -> None:
    """The limit is exactly that of the servers."""
    room = MAX_FRAME_BYTES - len(encode(Command(0, 1)))
    frame = encode(Command(0, 1, body=bytes(room)))

    assert len(FrameReader().feed(frame)[0].body) == room


def test_commands_before_a_malformed_frame_are_delivered() -> None:
    """The result must not depend on how TCP splits the stream."""
    reader = FrameReader()

    assert reader.feed(RESPONSE + _BROKEN) == FrameReader().feed(RESPONSE)

    assert reader.is_broken
    with pytest.raises(RemoteProtocolError):
        reader.feed(b"")


def test_a_broken_stream_stays_broken() -> None:
    """The start of the next frame is unknown after an error."""
    reader = FrameReader()
    with pytest.raises(RemoteProtocolError):
        reader.feed(_BROKEN)

    with pytest.raises(RemoteProtocolError):
        reader.feed(RESPONSE)


def test_an_incomplete_frame_uses_limited_memory() -> None:
    """A server may announce the maximum size and send it in small pieces."""
    reader = FrameReader(max_bytes=100_000)
    reader.feed(struct.pack(">II", 99_996, 0))
    tracemalloc.start()

    for _ in range(24_000):
        reader.feed(b"abcd")
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert taken < 300_000


@given(st.lists(st.binary(max_size=60), max_size=6))
@example([b"\x00\x00\x00\x04", b"\x00\x00\x00\x00"])
def test_any_bytes_are_commands_or_raise_a_protocol_error(pieces: list[bytes]) -> None:
    """No other exception is raised, and splitting does not change the result."""
    assert _outcome(pieces) == _outcome([b"".join(pieces)])


@given(st.integers(0, len(_STREAM) - 1), st.integers(1, 255), st.integers(0, len(_STREAM)))
def test_a_changed_byte_is_a_command_or_raises_a_protocol_error(at: int, mask: int, cut: int) -> None:
    """Valid streams with one changed byte reach the edge cases of the decoder."""
    damaged = _STREAM[:at] + bytes([_STREAM[at] ^ mask]) + _STREAM[at + 1 :]

    assert _outcome([damaged[:cut], damaged[cut:]]) == _outcome([damaged])
