"""Receipts: leases as signed, opaque text.

    token                = base64url( key id | first 16 bytes of the HMAC-SHA256 of the rest | fields joined by U+001F )
    receipt of a batch   = token
    receipt of a message = token "." offset "." stamp "." mark    one token for a whole range, so it is signed once
    mark                 = four bytes of BLAKE2s, keyed, of the token and what stands before the mark; in hex

Names cannot contain U+001F and client names are printable, so the join is unambiguous. The first field says which kind
it is: nobody can make one of another. No character of a receipt can be changed, left out or added. What was not signed
by a known key, or was signed for another group, is nobody's: None. The last field and the stamp are times for
statistics (stamps.py). Receipts of releases before (kind `range`) have no marks, and maybe no times.

Every gateway accepts what any other signs. So a key lies in the store for a while before anybody signs with it, in
which all have loaded it; and it is accepted for longer than any lease lasts after its successor has taken over.
"""

import base64
import binascii
import hashlib
import hmac
import itertools
from collections.abc import Iterable, Mapping, Sequence
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
_REMEMBERED = 20_000
MAX_RECEIPT_LENGTH = 1536
_LEASE_FIELDS = 8


class SigningKeys(NamedTuple):
    """The secrets that are accepted, by number, and the number of the one to sign with."""

    accepted: Mapping[int, bytes]
    current: int


class StoredKey(NamedTuple):
    number: int
    secret: bytes
    made_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRotationPolicy:
    """When a key is made, signs and goes; all by the store's clock. Keys come in the order they were made."""

    lifetime: timedelta = timedelta(days=30)
    # Many times what a gateway takes to hear of a new key.
    ahead: timedelta = timedelta(minutes=5)
    overlap: timedelta = timedelta(hours=24)

    def is_one_due(self, keys: Sequence[StoredKey], now: datetime) -> bool:
        """Whether a new key is to be made."""
        return not keys or keys[-1].made_at + self.lifetime <= now

    def retired(self, keys: Sequence[StoredKey], now: datetime) -> Sequence[StoredKey]:
        """Those whose successor has been signing for the overlap."""
        ended = now - self.ahead - self.overlap
        return [key for key, successor in itertools.pairwise(keys) if successor.made_at <= ended]

    def signing(self, keys: Sequence[StoredKey], now: datetime) -> SigningKeys:
        """The newest key that everybody has by now signs; the oldest, should none be that old."""
        settled = [key.number for key in keys if key.made_at + self.ahead <= now]
        return SigningKeys({key.number: key.secret for key in keys}, settled[-1] if settled else keys[0].number)


class _Token(NamedTuple):
    lease: Lease
    kind: str
    key: bytes


class ReceiptKeys:
    """The current signing key and those still accepted."""

    def __init__(self, keys: SigningKeys) -> None:
        # Mostly a receipt comes back to the gateway that signed it, soon: then nothing need be computed.
        self._known: dict[str, _Token] = {}
        self._keys: dict[bytes, bytes] = {}
        self._markers: dict[bytes, hashlib.blake2s] = {}
        self._begun: dict[bytes, hmac.HMAC] = {}
        self.update_keys(keys)

    def update_keys(self, keys: SigningKeys) -> None:
        """Go by these keys from now on."""
        named = {number.to_bytes(_KEY_ID): secret for number, secret in keys.accepted.items()}
        if not named.items() >= self._keys.items():
            # What a key signed goes with it.
            self._known.clear()
        self._keys = named
        # What the key alone decides is computed once, and is half of a short text's.
        self._begun = {number: hmac.new(secret, digestmod="sha256") for number, secret in named.items()}
        self._markers = {
            number: hashlib.blake2s(digest_size=_MARK, key=hashlib.blake2s(secret).digest())
            for number, secret in named.items()
        }
        self._current = keys.current.to_bytes(_KEY_ID)

    def has_unknown_key(self, receipt: str) -> bool:
        """Whether it names a key that is not here: another gateway may have made it since."""
        try:
            # Four characters are three bytes.
            return binascii.a2b_base64(_plain(receipt[:4]), strict_mode=True)[:_KEY_ID] not in self._keys
        except ValueError:
            return False

    def sign(self, lease: Lease, stamps: str = "") -> str:
        """The receipt of a whole batch."""
        return self._token(lease, stamps, _BATCH)

    def sign_each(self, lease: Lease, stamps: str, parts: Iterable[str]) -> list[str]:
        """The receipts of a range's messages; of each its offset, and behind a dot its stamp."""
        token = self._token(lease, stamps, _MARKED)
        marker = self._marker(self._current, token)
        return [f"{token}.{part}.{_mark(marker, part)}" for part in parts]

    def verify(self, receipt: str, group: str) -> Lease | None:
        """The lease that a receipt proves, or None for a forged, malformed or foreign one."""
        return self.verify_each((receipt,), group)[0]

    def verify_each(self, receipts: Sequence[str], group: str) -> list[Lease | None]:
        """The same of many; those of one range mostly come together, and their token is looked at once."""
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
                known = self._of_token(token, group, has_more=bool(dot))
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
                # Not by its fields' names: there may be a thousand of them in a request.
                found.append(tuple.__new__(Lease, (group, client, queue, at, at + 1, epoch, incarnation)))
            else:
                found.append(None)
        return found

    def _of_token(self, token: str, group: str, *, has_more: bool) -> "_Token | None":
        """What a token proves for a group, if more stands behind it just where its kind wants it."""
        known = self._known.get(token) or self._read(token)
        if known is None or known.lease.group != group or (known.kind != _BATCH) is not has_more:
            return None
        return known

    def _token(self, lease: Lease, stamps: str, kind: str) -> str:
        text = _SEPARATOR.join((kind, *map(str, lease), stamps)).encode()
        signed = self._current + self._tag(self._current, text) + text
        token = _text(signed)
        self._remember(token, _Token(lease, kind, self._current))
        return token

    def _read(self, token: str) -> "_Token | None":
        if len(token) > MAX_RECEIPT_LENGTH:
            return None
        try:
            raw = _raw(token)
        except ValueError:
            return None
        if _text(raw) != token:
            # The last character may have bits that say nothing.
            return None
        key, tag, text = raw[:_KEY_ID], raw[_KEY_ID : _KEY_ID + _TAG], raw[_KEY_ID + _TAG :]
        if key not in self._keys or not hmac.compare_digest(self._tag(key, text), tag):
            return None
        fields = text.decode().split(_SEPARATOR)
        kind, group, client, queue, start, after, epoch, incarnation = fields[:_LEASE_FIELDS]
        lease = Lease(group, client, queue, int(start), int(after), int(epoch), incarnation)
        found = _Token(lease, kind, key)
        self._remember(token, found)
        return found

    def _tag(self, key: bytes, text: bytes) -> bytes:
        signing = self._begun[key].copy()
        signing.update(text)
        return signing.digest()[:_TAG]

    def _marker(self, key: bytes, token: str) -> hashlib.blake2s:
        """What makes the marks of a token's receipts."""
        marker = self._markers[key].copy()
        marker.update(token.encode())
        return marker

    def _remember(self, token: str, known: "_Token") -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[token] = known


def stamps_of(token: str) -> str:
    """What a token that was verified carries beside its lease; empty if it was signed before there was such a thing."""
    fields = _raw(token)[_KEY_ID + _TAG :].decode().split(_SEPARATOR)
    return fields[_LEASE_FIELDS] if len(fields) > _LEASE_FIELDS else ""


def _number(text: str) -> int:
    """An offset; -1 unless it is written in the one way that there is, so that there is one receipt of a message."""
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
