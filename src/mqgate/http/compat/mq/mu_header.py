"""The MU header, by which the dialect's admin calls are opened: an e-mail address under a shared AES key.

The scheme is the original's and weak: no time, no nonce, so a header once seen is good for ever. Hence: off
without a key, shut to foreign networks like the rest of the dialect, and what decrypts must look like an
address (the original takes anything, and of random blocks one in 256 decrypts).
"""

import base64
import re
from typing import TYPE_CHECKING

from mqgate.http.compat.mq.envelope import FAILED, Refusal
from mqgate.settings import SettingsInvalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}")
_BLOCK_BITS = 128


class MuHeader:
    def __init__(self, cipher_key: str) -> None:
        self._cipher = _cipher(cipher_key) if cipher_key else None

    def check(self, badge: bytes | None) -> str:
        """The e-mail address on a badge; Refusal without one, with a wrong one, or when nobody may."""
        if self._cipher is None:
            raise Refusal(FAILED, "no permission! the admin calls are off: set [mq] cipher_key")
        if not badge:
            raise Refusal(FAILED, "no permission!")
        try:
            address = _open(self._cipher, base64.b64decode(badge, validate=True))
        except ValueError:
            raise Refusal(FAILED, "access denied!") from None
        if not _ADDRESS.fullmatch(address):
            raise Refusal(FAILED, "access denied!")
        return address


def _cipher(key: str) -> "Cipher[modes.ECB]":
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - an extra
    except ImportError:
        raise SettingsInvalid(
            ["[mq] cipher_key needs a package that is not installed: pip install mqgate[mq-admin]"]
        ) from None
    return Cipher(algorithms.AES(key.encode()), modes.ECB())  # noqa: S305 - what the header's senders use


def _open(cipher: "Cipher[modes.ECB]", sealed: bytes) -> str:
    from cryptography.hazmat.primitives.padding import PKCS7  # noqa: PLC0415 - an extra, there since the cipher is

    decryptor = cipher.decryptor()
    padded = decryptor.update(sealed) + decryptor.finalize()
    unpadder = PKCS7(_BLOCK_BITS).unpadder()
    return (unpadder.update(padded) + unpadder.finalize()).decode("ascii")
