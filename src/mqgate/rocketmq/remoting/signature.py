"""Signatures for brokers with access control: HMAC-SHA1 over the values of the sorted fields and the body.

A signature authenticates the client but does not prevent replay: use TLS as well.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Credentials", "sign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)


def sign(fields: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """Return the fields with access key and signature added."""
    signed = {**fields, "AccessKey": credentials.access_key}
    if credentials.security_token:
        signed["SecurityToken"] = credentials.security_token
    content = "".join(signed[name] for name in sorted(signed)).encode() + body
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    signed["Signature"] = base64.b64encode(digest).decode()
    return signed
