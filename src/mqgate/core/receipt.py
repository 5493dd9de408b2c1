"""Receipts: leases as signed, opaque text.

    base64url( key id (2 bytes) | HMAC-SHA256 of the rest, first 16 bytes | fields joined by U+001F )

Names cannot contain U+001F and client names are printable, so the join is unambiguous. A receipt that
was not signed by a known key, or was signed for another group, is nobody's: None.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from mqgate.core.lease import Lease

_SEPARATOR = "\x1f"
_KEY_ID = 2
_TAG = 16
_BLOCK = 64
_REMEMBERED = 20_000
_LONGEST = 1024


class _Hmac:
    """HMAC-SHA256 with its two padded keys hashed beforehand: a third of hmac.digest's time, 64 times a batch."""

    def __init__(self, secret: bytes) -> None:
        padded = secret.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def tag(self, text: bytes) -> bytes:
        inner = self._inner.copy()
        inner.update(text)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()[:_TAG]


class ReceiptKeys:
    """The current signing key and those still accepted."""

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        self._keys = {number.to_bytes(_KEY_ID): _Hmac(secret) for number, secret in keys.items()}
        self._current = max(self._keys)
        # Mostly a receipt comes back to the gateway that signed it, soon: then nothing need be computed.
        self._recent: dict[str, Lease] = {}

    def sign(self, lease: Lease) -> str:
        text = _SEPARATOR.join(
            (
                lease.group,
                lease.client,
                lease.queue,
                str(lease.start),
                str(lease.next),
                str(lease.epoch),
                lease.incarnation,
            )
        ).encode()
        tag = self._keys[self._current].tag(text)
        receipt = base64.urlsafe_b64encode(self._current + tag + text).decode().rstrip("=")
        if len(self._recent) >= _REMEMBERED:
            self._recent.clear()
        self._recent[receipt] = lease
        return receipt

    def verify(self, receipt: str, group: str) -> Lease | None:
        """The lease that a receipt proves, or None for a forged, malformed or foreign one."""
        known = self._recent.get(receipt)
        if known is not None:
            return known if known.group == group else None
        if len(receipt) > _LONGEST:
            return None
        try:
            padded = receipt.replace("-", "+").replace("_", "/") + "=" * (-len(receipt) % 4)
            raw = binascii.a2b_base64(padded, strict_mode=True)
        except ValueError:
            return None
        key = self._keys.get(raw[:_KEY_ID])
        text = raw[_KEY_ID + _TAG :]
        if key is None or not hmac.compare_digest(key.tag(text), raw[_KEY_ID : _KEY_ID + _TAG]):
            return None
        owner, client, queue, start, after, epoch, incarnation = text.decode().split(_SEPARATOR)
        if owner != group:
            return None
        return Lease(owner, client, queue, int(start), int(after), int(epoch), incarnation)
