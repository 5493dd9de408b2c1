"""Receipts: leases as signed, opaque text.

    token                = base64url( key id | first 16 bytes of the HMAC-SHA256 of the rest | fields joined by U+001F )
    receipt of a batch   = token
    receipt of a message = token "." offset "." time "." mark     one token for a whole range, so it is signed once
    mark                 = four bytes of keyed BLAKE2s of the token and the text before the mark, in hex

Names cannot contain U+001F and client ids are printable, so the join is unambiguous. The first field is the kind, so a
receipt of one kind cannot be turned into another. No character of a receipt can be changed, removed or added. A receipt
that no known key signed, or that was signed for another group, verifies as None. The last field and the time are for
statistics (see `receipt_times`). Receipts of earlier releases (kind `range`) have no marks and may have no times.

Every gateway accepts the receipts of all others. So a new key is stored for a while before it signs, until all gateways
have loaded it. After its successor signs, it is accepted for longer than any lease lasts.
"""

import base64
import binascii
import hashlib
import hmac
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from mqgate.core.lease import Lease

__all__ = ["KeyRotationPolicy", "ReceiptKeys", "SigningKeys", "StoredKey", "stamps_of"]

_SEPARATOR = "\x1f"
_BATCH, _RANGE, _MARKED = "batch", "range", "marked"
_KEY_ID = 2
_MARK = 4
_TAG = 16
_MAX_CACHED = 20_000
MAX_RECEIPT_LENGTH = 1536
_LEASE_FIELDS = 8


class SigningKeys(NamedTuple):
    """The accepted secrets by key number, and the number of the key that signs."""

    accepted: Mapping[int, bytes]
    current: int


class StoredKey(NamedTuple):
    number: int
    secret: bytes
    made_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRotationPolicy:
    """When a key is created, signs and is deleted, by the clock of the store. Keys are passed in order of creation."""

    lifetime: timedelta = timedelta(days=30)
    # Many times longer than a gateway takes to load a new key.
    ahead: timedelta = timedelta(minutes=5)
    overlap: timedelta = timedelta(hours=24)

    def is_one_due(self, keys: Sequence[StoredKey], now: datetime) -> bool:
        """Return whether a new key must be created."""
        return not keys or keys[-1].made_at + self.lifetime <= now

    def retired(self, keys: Sequence[StoredKey], now: datetime) -> Sequence[StoredKey]:
        """Return the keys whose successors have signed for longer than the overlap."""
        ended = now - self.ahead - self.overlap
        return [key for key, successor in itertools.pairwise(keys) if successor.made_at <= ended]

    def signing(self, keys: Sequence[StoredKey], now: datetime) -> SigningKeys:
        """Return all keys. The newest key that every gateway has loaded signs, or the oldest if there is none."""
        loaded = [key.number for key in keys if key.made_at + self.ahead <= now]
        return SigningKeys({key.number: key.secret for key in keys}, loaded[-1] if loaded else keys[0].number)


class _Token(NamedTuple):
    lease: Lease
    kind: str
    key: bytes


class _SignedRange(NamedTuple):
    """The receipts that were signed for consecutive messages: their lease, and a keyed hash of all of them."""

    lease: Lease
    size: int
    digest: bytes


class ReceiptKeys:
    """The current signing key and the accepted keys. Signs and verifies receipts."""

    def __init__(self, keys: SigningKeys) -> None:
        # Most receipts return to the gateway that signed them. The cache saves the verification.
        self._known: dict[str, _Token] = {}
        self._ranges: dict[str, _SignedRange] = {}
        # Its key is random, because the hashes do not leave this process.
        self._range_hash = hashlib.blake2s(digest_size=_TAG, key=os.urandom(hashlib.blake2s.MAX_KEY_SIZE))
        self._keys: dict[bytes, bytes] = {}
        self._markers: dict[bytes, hashlib.blake2s] = {}
        self._signers: dict[bytes, hmac.HMAC] = {}
        self.update_keys(keys)

    def update_keys(self, keys: SigningKeys) -> None:
        """Replace the keys."""
        named = {number.to_bytes(_KEY_ID): secret for number, secret in keys.accepted.items()}
        if not named.items() >= self._keys.items():
            # A key was removed: its cached tokens are no longer valid.
            self._known.clear()
            self._ranges.clear()
        self._keys = named
        # Keyed states are computed once, which is half of the cost for a short text.
        self._signers = {number: hmac.new(secret, digestmod="sha256") for number, secret in named.items()}
        self._markers = {
            number: hashlib.blake2s(digest_size=_MARK, key=hashlib.blake2s(secret).digest())
            for number, secret in named.items()
        }
        self._current = keys.current.to_bytes(_KEY_ID)

    def has_unknown_key(self, receipt: str) -> bool:
        """Return whether the receipt names a key that is not loaded. Another gateway may have created it."""
        try:
            # Four characters encode three bytes.
            return binascii.a2b_base64(_plain(receipt[:4]), strict_mode=True)[:_KEY_ID] not in self._keys
        except ValueError:
            return False

    def sign(self, lease: Lease, stamps: str = "") -> str:
        """Return the receipt of a whole batch."""
        return self._token(lease, stamps, _BATCH)

    def sign_each(self, lease: Lease, stamps: str, parts: Sequence[str]) -> list[str]:
        """Return the receipts of the messages of a range. A part is an offset, a dot and a store time."""
        token = self._token(lease, stamps, _MARKED)
        marker = self._marker(self._current, token)
        receipts = [f"{token}.{part}.{_mark(marker, part)}" for part in parts]
        self._cache_range(lease, token, parts, receipts)
        return receipts

    def verify_range(self, receipts: Sequence[str], group: str) -> Lease | None:
        """Return one lease for all receipts if they are those of consecutive messages that `sign_each` has returned.

        None: they may be valid, but each must be verified. One hash of all receipts takes a tenth of the time.
        """
        known = self._ranges.get(receipts[0].partition(".")[0])
        # With the right number of receipts, the separators cannot be a part of one.
        if known is None or known.size != len(receipts) or known.lease.group != group:
            return None
        return known.lease if hmac.compare_digest(self._digest(receipts), known.digest) else None

    def verify(self, receipt: str, group: str) -> Lease | None:
        """Return the lease of a receipt, or None if it is forged, malformed or of another group."""
        return self.verify_each((receipt,), group)[0]

    def verify_each(self, receipts: Sequence[str], group: str) -> list[Lease | None]:
        """Return the lease of each receipt. Consecutive receipts of one range share the check of their token."""
        found: list[Lease | None] = []
        last, dot_of_last = "", "?"
        known: _Token | None = None
        marker: hashlib.blake2s | None = None
        client = queue = incarnation = ""
        start = after = epoch = 0
        for receipt in receipts:
            token, dot, rest = receipt.partition(".")
            if token != last or dot != dot_of_last:
                last, dot_of_last, marker = token, dot, None
                known = self._check_token(token, group, has_more=bool(dot))
                if known is not None:
                    _, client, queue, start, after, epoch, incarnation = known.lease
                    marker = self._marker(known.key, token) if known.kind == _MARKED else None
            if known is None or not dot:
                found.append(None if known is None else known.lease)
                continue
            if marker is not None:
                rest, _, mark = rest.rpartition(".")
                if mark != _mark(marker, rest):
                    found.append(None)
                    continue
            at = _number(rest.partition(".")[0])
            if start <= at < after:
                # Faster than Lease(...): a request may contain a thousand receipts.
                found.append(tuple.__new__(Lease, (group, client, queue, at, at + 1, epoch, incarnation)))
            else:
                found.append(None)
        return found

    def _check_token(self, token: str, group: str, *, has_more: bool) -> "_Token | None":
        """Return the token if it is valid for the group, and if its kind allows (or requires) text after it."""
        known = self._known.get(token) or self._read(token)
        if known is None or known.lease.group != group or (known.kind != _BATCH) is not has_more:
            return None
        return known

    def _token(self, lease: Lease, stamps: str, kind: str) -> str:
        text = _SEPARATOR.join((kind, *map(str, lease), stamps)).encode()
        signed = self._current + self._tag(self._current, text) + text
        token = _text(signed)
        self._cache(token, _Token(lease, kind, self._current))
        return token

    def _read(self, token: str) -> "_Token | None":
        if len(token) > MAX_RECEIPT_LENGTH:
            return None
        try:
            raw = _raw(token)
        except ValueError:
            return None
        if _text(raw) != token:
            # Unused bits of the last character must be zero.
            return None
        key, tag, text = raw[:_KEY_ID], raw[_KEY_ID : _KEY_ID + _TAG], raw[_KEY_ID + _TAG :]
        if key not in self._keys or not hmac.compare_digest(self._tag(key, text), tag):
            return None
        fields = text.decode().split(_SEPARATOR)
        kind, group, client, queue, start, after, epoch, incarnation = fields[:_LEASE_FIELDS]
        lease = Lease(group, client, queue, int(start), int(after), int(epoch), incarnation)
        found = _Token(lease, kind, key)
        self._cache(token, found)
        return found

    def _tag(self, key: bytes, text: bytes) -> bytes:
        signer = self._signers[key].copy()
        signer.update(text)
        return signer.digest()[:_TAG]

    def _marker(self, key: bytes, token: str) -> hashlib.blake2s:
        """Return the hash state from which the marks of a token are computed."""
        marker = self._markers[key].copy()
        marker.update(token.encode())
        return marker

    def _digest(self, receipts: Sequence[str]) -> bytes:
        digest = self._range_hash.copy()
        digest.update("\n".join(receipts).encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _cache_range(self, lease: Lease, token: str, parts: Sequence[str], receipts: Sequence[str]) -> None:
        """Remember receipts of consecutive messages. The offsets of `parts` are in ascending order."""
        offsets = [_number(part.partition(".")[0]) for part in (*parts[:1], *parts[-1:])]
        if offsets and lease.start <= offsets[0] and offsets[1] == offsets[0] + len(parts) - 1 < lease.next:
            if len(self._ranges) >= _MAX_CACHED:
                self._ranges.clear()
            whole = lease._replace(start=offsets[0], next=offsets[1] + 1)
            self._ranges[token] = _SignedRange(whole, len(parts), self._digest(receipts))

    def _cache(self, token: str, known: "_Token") -> None:
        if len(self._known) >= _MAX_CACHED:
            self._known.clear()
        self._known[token] = known


def stamps_of(token: str) -> str:
    """Return the times of a verified token, or an empty text if an earlier release signed it."""
    fields = _raw(token)[_KEY_ID + _TAG :].decode().split(_SEPARATOR)
    return fields[_LEASE_FIELDS] if len(fields) > _LEASE_FIELDS else ""


def _number(text: str) -> int:
    """Return an offset, or -1 if it is not in canonical form: each message has exactly one valid receipt."""
    try:
        number = int(text)
    except ValueError:
        return -1
    return number if str(number) == text else -1


def _mark(marker: hashlib.blake2s, part: str) -> str:
    own = marker.copy()
    own.update(part.encode())
    return own.hexdigest()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _raw(token: str) -> bytes:
    return binascii.a2b_base64(_plain(token) + "=" * (-len(token) % 4), strict_mode=True)


def _plain(token: str) -> str:
    return token.replace("-", "+").replace("_", "/")
