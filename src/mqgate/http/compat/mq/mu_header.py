"""The MU header, which authenticates admin calls of the dialect: an e-mail address, encrypted with a shared AES key.

The scheme of the original is weak: it has no time and no nonce, so a captured header stays valid forever. Therefore it
is disabled without a key and limited to the allowed networks, and the decrypted text must be an e-mail address. The
original accepts any text, and one in 256 random blocks decrypts.
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
    """Decrypts and checks MU headers."""

    def __init__(self, cipher_key: str) -> None:
        self._cipher = _cipher(cipher_key) if cipher_key else None

    def check(self, header: bytes | None) -> str:
        """Return the e-mail address in a header. Raise Refusal for a missing or wrong header, or without a key."""
        if self._cipher is None:
            raise Refusal(FAILED, "no permission! admin calls are disabled: set [mq] cipher_key")
        if not header:
            raise Refusal(FAILED, "no permission!")
        try:
            address = _decrypt(self._cipher, base64.b64decode(header, validate=True))
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
            ["[mq] cipher_key requires a package that is not installed: pip install mqgate[mq-admin]"]
        ) from None
    return Cipher(algorithms.AES(key.encode()), modes.ECB())  # noqa: S305 - required by the dialect


def _decrypt(cipher: "Cipher[modes.ECB]", encrypted: bytes) -> str:
    from cryptography.hazmat.primitives.padding import PKCS7  # noqa: PLC0415 - an extra

    decryptor = cipher.decryptor()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    unpadder = PKCS7(_BLOCK_BITS).unpadder()
    return (unpadder.update(padded) + unpadder.finalize()).decode("ascii")
