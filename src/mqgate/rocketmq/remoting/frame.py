"""Splits a stream of bytes into commands. A frame that is too large is refused before it is buffered."""

import struct

from mqgate.rocketmq.errors import RemoteProtocolError
from mqgate.rocketmq.remoting.command import MAX_FRAME_BYTES, Command, decode

__all__ = ["MAX_FRAME_BYTES", "FrameReader"]

_PREFIX = struct.Struct(">II")
_LENGTH = 4
_HEADER_MASK = 0xFFFFFF


class FrameReader:
    """A decoder of a byte stream. `feed` takes received bytes and returns the commands that they complete.

    After RemoteProtocolError the connection must be closed. Commands before the malformed frame are returned first, so
    that the result does not depend on how the stream was split. Then `is_broken` is set and the next `feed` raises.
    """

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._most = max_bytes
        self._kept = bytearray()
        self._fault = ""

    @property
    def is_between_frames(self) -> bool:
        """Return whether the stream may end here."""
        return not self._kept

    @property
    def is_broken(self) -> bool:
        return bool(self._fault)

    def feed(self, data: bytes) -> list[Command]:
        commands: list[Command] = []
        if not self._fault:
            try:
                if self._kept:
                    self._kept += data
                    with memoryview(self._kept) as view:
                        used = self._cut(view, commands)
                    del self._kept[:used]
                else:
                    # The common case, complete frames, is not copied into the buffer.
                    self._kept += data[self._cut(data, commands) :]
            except RemoteProtocolError as error:
                self._fault = str(error)
                self._kept.clear()
        if self._fault and not commands:
            raise RemoteProtocolError(self._fault)
        return commands

    def _cut(self, data: bytes | memoryview, commands: list[Command]) -> int:
        """Append all complete commands, and return how many bytes they used."""
        at, size = 0, len(data)
        while size - at >= _PREFIX.size:
            total, type_and_length = _PREFIX.unpack_from(data, at)
            head_length = type_and_length & _HEADER_MASK
            if total + _LENGTH > self._most or total < _LENGTH + head_length:
                raise RemoteProtocolError(f"malformed frame of {total} bytes with a header of {head_length}")
            end = at + _LENGTH + total
            if size < end:
                break
            head_start = at + _PREFIX.size
            head_end = head_start + head_length
            commands.append(decode(type_and_length >> 24, bytes(data[head_start:head_end]), bytes(data[head_end:end])))
            at = end
        return at
