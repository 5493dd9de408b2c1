"""MU headers as consoles of the dialect create them."""

import base64
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from mq_calls import Mq

KEY = "sixteen-byte-key"


def encrypt_mu_header(text: str, key: str = KEY) -> str:
    raw = text.encode()
    left = 16 - len(raw) % 16
    encryptor = Cipher(algorithms.AES(key.encode()), modes.ECB()).encryptor()  # noqa: S305 - the header's own
    return base64.b64encode(encryptor.update(raw + bytes([left]) * left) + encryptor.finalize()).decode()


async def configure(mq: Mq, **body: Any) -> dict[str, Any]:
    return await mq.call(
        "POST", "consumer/config", json={"consumer": "C", **body}, headers={"MU": encrypt_mu_header("ann@example.com")}
    )
