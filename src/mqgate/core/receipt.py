"""Receipts: leases as signed, opaque text.

    token                = base64url( key id | first 16 bytes of the HMAC-SHA256 of the rest | fields joined by U+001F )
    receipt of a batch   = token
    receipt of a message = token "." offset     one token for a whole range, so a batch of them is signed once

Names cannot contain U+001F and client names are printable, so the join is unambiguous. The first field says which kind
it is: nobody can make one of the other. Whoever has a token was granted its whole range, so an offset within it proves
no more than it should. What was not signed by a known key, or was signed for another group, is nobody's: None.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping

from mqgate.core.lease import Lease

_SEPARATOR = "\x1f"
_KEY_ID = 2
_TAG = 16
_REMEMBERED = 20_000
_LONGEST = 1024


class ReceiptKeys:
    """The current signing key and those still accepted."""

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        self._keys = {number.to_bytes(_KEY_ID): secret for number, secret in keys.items()}
        self._current = max(self._keys)
        # Mostly a receipt comes back to the gateway that signed it, soon: then nothing need be computed.
        self._known: dict[str, tuple[Lease, bool]] = {}

    def sign(self, lease: Lease) -> str:
        """The receipt of a whole batch."""
        return self._token(lease, is_range=False)

    def sign_range(self, lease: Lease) -> str:
        """What the receipts of a range's messages begin with: append a message's offset."""
        return self._token(lease, is_range=True) + "."

    def verify(self, receipt: str, group: str) -> Lease | None:
        """The lease that a receipt proves, or None for a forged, malformed or foreign one."""
        token, _, offset = receipt.partition(".")
        known = self._known.get(token) or self._read(token)
        if known is None:
            return None
        lease, is_range = known
        if lease.group != group or is_range is not ("." in receipt):
            return None
        if not is_range:
            return lease
        if not (offset.isascii() and offset.isdigit() and len(offset) < 20) or str(int(offset)) != offset:  # noqa: PLR2004 - digits of 64 bits
            return None
        at = int(offset)
        if not lease.start <= at < lease.next:
            return None
        return Lease(group, lease.client, lease.queue, at, at + 1, lease.epoch, lease.incarnation)

    def _token(self, lease: Lease, *, is_range: bool) -> str:
        kind = "range" if is_range else "batch"
        text = _SEPARATOR.join((kind, *map(str, lease))).encode()
        token = base64.urlsafe_b64encode(self._current + self._tag(self._current, text) + text).decode().rstrip("=")
        self._remember(token, (lease, is_range))
        return token

    def _read(self, token: str) -> tuple[Lease, bool] | None:
        if len(token) > _LONGEST:
            return None
        try:
            padded = token.replace("-", "+").replace("_", "/") + "=" * (-len(token) % 4)
            raw = binascii.a2b_base64(padded, strict_mode=True)
        except ValueError:
            return None
        key, tag, text = raw[:_KEY_ID], raw[_KEY_ID : _KEY_ID + _TAG], raw[_KEY_ID + _TAG :]
        if key not in self._keys or not hmac.compare_digest(self._tag(key, text), tag):
            return None
        kind, group, client, queue, start, after, epoch, incarnation = text.decode().split(_SEPARATOR)
        found = Lease(group, client, queue, int(start), int(after), int(epoch), incarnation), kind == "range"
        self._remember(token, found)
        return found

    def _tag(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(self._keys[key], text, "sha256")[:_TAG]

    def _remember(self, token: str, lease: tuple[Lease, bool]) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[token] = lease
