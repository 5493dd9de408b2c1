"""The session cookie, and the protection of requests that it authenticates.

The browser attaches a cookie to requests of any page, so a request with a cookie needs proof that a page of this
gateway sent it:

- The cookie is `SameSite=Lax`: other sites' requests carry it for top-level GET navigation only, which changes nothing.
- A request with an unsafe method must have an `Origin` header that names this gateway, or `Sec-Fetch-Site:
  same-origin`. All current browsers send both; a request with neither is refused. Pages of a sibling domain are of the
  same site but another origin, so they are refused as well, and so are the origins of `[http] cors_origins`.
- Over https the cookie has the prefix `__Host-`: a sibling domain cannot set it, so nobody can plant a session.
"""

from collections.abc import Mapping

from mqgate.core.errors import OriginNotAllowed

__all__ = ["check_same_origin", "clear_cookie", "session_token", "set_cookie"]

_NAME = "mqgate_session"
_MAX_COOKIE_BYTES = 8_192
_SAFE = {"GET", "HEAD", "OPTIONS"}


def _cookie_name(scheme: str) -> str:
    return f"__Host-{_NAME}" if scheme == "https" else _NAME


def session_token(headers: Mapping[bytes, bytes], scheme: str) -> str | None:
    """Return the session token in the Cookie header. The cookie name depends on the scheme."""
    wanted = _cookie_name(scheme).encode()
    for pair in headers.get(b"cookie", b"")[:_MAX_COOKIE_BYTES].split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == wanted and value:
            return value.decode("latin-1")
    return None


def set_cookie(token: str, scheme: str, max_age: int) -> tuple[bytes, bytes]:
    """Return the header that stores a session token in the browser."""
    secure = "; Secure" if scheme == "https" else ""
    value = f"{_cookie_name(scheme)}={token}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", value.encode("latin-1")


def clear_cookie(scheme: str) -> tuple[bytes, bytes]:
    """Return the header that deletes the session token from the browser."""
    return set_cookie("", scheme, 0)


def check_same_origin(method: str, headers: Mapping[bytes, bytes], scheme: str, *, is_header_required: bool) -> None:
    """Raise OriginNotAllowed unless a page of this gateway sent an unsafe request.

    Without a required header, a request of a client that is no browser is accepted.
    """
    if method in _SAFE:
        return
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if origin is None and site is None:
        if is_header_required:
            raise OriginNotAllowed("A request with a session cookie needs an Origin header. Send the token as a key.")
        return
    host = headers.get(b"host", b"")
    is_own = origin is not None and origin.lower() == f"{scheme}://".encode() + host.lower()
    if origin is not None and not is_own:
        shown = origin[:100].decode("latin-1")
        raise OriginNotAllowed("A page of another origin sent this request.", origin=shown)
    if site not in {None, b"same-origin"}:
        raise OriginNotAllowed("A page of another origin sent this request.")
