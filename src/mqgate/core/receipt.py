"""Receipts: leases as signed, opaque text.

    token                = base64url( key id | first 16 bytes of the HMAC-SHA256 of the rest | fields joined by U+001F )
    receipt of a batch   = token
    receipt of a message = token "." offset "." stamp    one token for a whole range, so a batch of them is signed once

Names cannot contain U+001F and client names are printable, so the join is unambiguous. The first field says which kind
it is: nobody can make one of the other. Whoever has a token was granted its whole range, so an offset within it proves
no more than it should. What was not signed by a known key, or was signed for another group, is nobody's: None. The last
field and the stamp are times for statistics (stamps.py); both may be missing.

Every gateway accepts what any other signs. So a key lies in the store for a while before anybody signs with it, in
which all have loaded it; and it is accepted for longer than any lease lasts after its successor has taken over.
"""

import base64
import binascii
import hmac
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from mqgate.core.lease import Lease

__all__ = ["KeyTerms", "ReceiptKeys", "SigningKeys", "StoredKey", "stamps_of"]

_SEPARATOR = "\x1f"
_KEY_ID = 2
_TAG = 16
_REMEMBERED = 20_000
_LONGEST = 1536
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
class KeyTerms:
    """When a key is made, signs and goes; all by the store's clock. Keys come in the order they were made."""

    lifetime: timedelta = timedelta(days=30)
    # Many times what a gateway takes to hear of a new key.
    ahead: timedelta = timedelta(minutes=5)
    overlap: timedelta = timedelta(hours=24)

    def is_one_due(self, keys: Sequence[StoredKey], now: datetime) -> bool:
        """Whether a new key is to be made."""
        return not keys or keys[-1].made_at + self.lifetime <= now

    def outlived(self, keys: Sequence[StoredKey], now: datetime) -> Sequence[StoredKey]:
        """Those whose successor has been signing for the overlap."""
        ended = now - self.ahead - self.overlap
        return [key for key, successor in itertools.pairwise(keys) if successor.made_at <= ended]

    def signing(self, keys: Sequence[StoredKey], now: datetime) -> SigningKeys:
        """The newest key that everybody has by now signs; the oldest, should none be that old."""
        settled = [key.number for key in keys if key.made_at + self.ahead <= now]
        return SigningKeys({key.number: key.secret for key in keys}, settled[-1] if settled else keys[0].number)


class ReceiptKeys:
    """The current signing key and those still accepted."""

    def __init__(self, keys: SigningKeys) -> None:
        # Mostly a receipt comes back to the gateway that signed it, soon: then nothing need be computed.
        self._known: dict[str, tuple[Lease, bool]] = {}
        self._keys: dict[bytes, bytes] = {}
        self._begun: dict[bytes, hmac.HMAC] = {}
        self.learn(keys)

    def learn(self, keys: SigningKeys) -> None:
        """Go by these keys from now on."""
        named = {number.to_bytes(_KEY_ID): secret for number, secret in keys.accepted.items()}
        if not named.items() >= self._keys.items():
            # What a key signed goes with it.
            self._known.clear()
        self._keys = named
        # What the key alone decides is computed once, and is half of a short text's.
        self._begun = {number: hmac.new(secret, digestmod="sha256") for number, secret in named.items()}
        self._current = keys.current.to_bytes(_KEY_ID)

    def is_strange(self, receipt: str) -> bool:
        """Whether it names a key that is not here: another gateway may have made it since."""
        try:
            # Four characters are three bytes.
            return binascii.a2b_base64(_plain(receipt[:4]), strict_mode=True)[:_KEY_ID] not in self._keys
        except ValueError:
            return False

    def sign(self, lease: Lease, stamps: str = "") -> str:
        """The receipt of a whole batch."""
        return self._token(lease, stamps, is_range=False)

    def sign_range(self, lease: Lease, stamps: str = "") -> str:
        """What the receipts of a range's messages begin with: append a message's offset, a dot and its stamp."""
        return self._token(lease, stamps, is_range=True) + "."

    def verify(self, receipt: str, group: str) -> Lease | None:
        """The lease that a receipt proves, or None for a forged, malformed or foreign one."""
        return self.verify_each((receipt,), group)[0]

    def verify_each(self, receipts: Sequence[str], group: str) -> list[Lease | None]:
        """The same of many; those of one range mostly come together, and their token is looked at once."""
        found: list[Lease | None] = []
        last, dot_of_last = "", "?"
        lease: Lease | None = None
        client = queue = incarnation = ""
        start = after = epoch = 0
        for receipt in receipts:
            token, dot, rest = receipt.partition(".")
            if token != last or dot != dot_of_last:
                last, dot_of_last = token, dot
                lease = self._of_token(token, group, is_range=bool(dot))
                if lease is not None:
                    _, client, queue, start, after, epoch, incarnation = lease
            if lease is None or not dot:
                found.append(lease)
                continue
            offset = rest.partition(".")[0]
            at = _number(offset)
            if start <= at < after:
                # Not by its fields' names: there may be a thousand of them in a request.
                found.append(tuple.__new__(Lease, (group, client, queue, at, at + 1, epoch, incarnation)))
            else:
                found.append(None)
        return found

    def _of_token(self, token: str, group: str, *, is_range: bool) -> Lease | None:
        """What a token of this kind proves for a group."""
        known = self._known.get(token) or self._read(token)
        if known is None or known[0].group != group or known[1] is not is_range:
            return None
        return known[0]

    def _token(self, lease: Lease, stamps: str, *, is_range: bool) -> str:
        kind = "range" if is_range else "batch"
        text = _SEPARATOR.join((kind, *map(str, lease), stamps)).encode()
        signed = self._current + self._tag(self._current, text) + text
        token = base64.urlsafe_b64encode(signed).decode().rstrip("=")
        self._remember(token, (lease, is_range))
        return token

    def _read(self, token: str) -> tuple[Lease, bool] | None:
        if len(token) > _LONGEST:
            return None
        try:
            raw = _raw(token)
        except ValueError:
            return None
        key, tag, text = raw[:_KEY_ID], raw[_KEY_ID : _KEY_ID + _TAG], raw[_KEY_ID + _TAG :]
        if key not in self._keys or not hmac.compare_digest(self._tag(key, text), tag):
            return None
        fields = text.decode().split(_SEPARATOR)
        kind, group, client, queue, start, after, epoch, incarnation = fields[:_LEASE_FIELDS]
        found = Lease(group, client, queue, int(start), int(after), int(epoch), incarnation), kind == "range"
        self._remember(token, found)
        return found

    def _tag(self, key: bytes, text: bytes) -> bytes:
        signing = self._begun[key].copy()
        signing.update(text)
        return signing.digest()[:_TAG]

    def _remember(self, token: str, lease: tuple[Lease, bool]) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[token] = lease


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


def _raw(token: str) -> bytes:
    return binascii.a2b_base64(_plain(token) + "=" * (-len(token) % 4), strict_mode=True)


def _plain(token: str) -> str:
    return token.replace("-", "+").replace("_", "/")
