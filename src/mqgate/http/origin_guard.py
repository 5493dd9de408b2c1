"""Protection against web pages of other origins, for requests that carry no credentials.

Any page that a user opens can make the browser send requests to loopback addresses. Where a request is served because
of where it comes from (an open gateway, `/mq` networks), the browser's own headers decide whether it may be:

- `Host` must be a known name. Otherwise a page could read responses after its own name was rebound to a loopback
  address (DNS rebinding).
- `Origin`, if present, must be this gateway's own origin, or be listed in `[http] cors_origins`.
- `Sec-Fetch-Site`, if present, must not name another site or origin. A top-level GET navigation to a page is allowed.

Clients that are no browsers send neither Origin nor Sec-Fetch-Site. A request with a key is not checked: a page that
knows the key needs no trick.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from mqgate.core.errors import HostNotAllowed, OriginNotAllowed

__all__ = ["OriginGuard"]

Headers = list[tuple[bytes, bytes]]
_SAME_ORIGIN = {None, b"same-origin", b"none"}
_PREFLIGHT_SECONDS = b"600"


class OriginGuard:
    """Checks the headers that browsers add, and creates CORS headers for listed origins."""

    def __init__(self, allowed_hosts: Sequence[str], cors_origins: Sequence[str]) -> None:
        self._hosts = {_host_name(host) for host in allowed_hosts}
        self._origins = {origin.rstrip("/").lower().encode() for origin in cors_origins}
        self._is_host_allowed = lru_cache(maxsize=256)(self._check_host)

    def check(self, method: str, headers: Mapping[bytes, bytes], *, is_page: bool) -> None:
        """Raise HostNotAllowed or OriginNotAllowed if a browser sent this request for a page of another origin."""
        host = headers.get(b"host")
        if host is not None and not self._is_host_allowed(host):
            name = _text(host)
            raise HostNotAllowed(f"Add {name} to [http] allowed_hosts, or send a key.", host=name)
        origin = headers.get(b"origin")
        if origin is not None:
            if self._is_listed(origin) or (host is not None and origin.lower().partition(b"://")[2] == host.lower()):
                return
            raise OriginNotAllowed(f"Send a key, or add {_text(origin)} to [http] cors_origins.", origin=_text(origin))
        if headers.get(b"sec-fetch-site") in _SAME_ORIGIN:
            return
        if is_page and method in {"GET", "HEAD"} and headers.get(b"sec-fetch-mode") == b"navigate":
            return
        raise OriginNotAllowed("A page of another origin sent this request. Send a key.")

    def cors_headers(self, headers: Mapping[bytes, bytes]) -> Headers:
        """Return the headers that let a page of a listed origin read the response."""
        origin = headers.get(b"origin")
        if origin is None or not self._is_listed(origin):
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"x-request-id, retry-after"),
            (b"vary", b"origin"),
        ]

    def preflight_headers(self, headers: Mapping[bytes, bytes], methods: str) -> Headers:
        """Return the response headers of a preflight request; empty if it is none, or of an origin not listed."""
        if b"access-control-request-method" not in headers:
            return []
        allowed = self.cors_headers(headers)
        if not allowed:
            return []
        allowed += [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-max-age", _PREFLIGHT_SECONDS),
        ]
        requested = headers.get(b"access-control-request-headers")
        if requested is not None:
            allowed.append((b"access-control-allow-headers", requested))
        return allowed

    def _is_listed(self, origin: bytes) -> bool:
        return bool(self._origins) and (b"*" in self._origins or origin.lower() in self._origins)

    def _check_host(self, host: bytes) -> bool:
        return "*" in self._hosts or _host_name(host.decode("latin-1")) in self._hosts


def _host_name(host: str) -> str:
    """Return a Host header or setting without its port and brackets, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _text(value: bytes) -> str:
    return value[:100].decode("latin-1")
