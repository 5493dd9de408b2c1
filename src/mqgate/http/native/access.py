"""Handlers for people: sign in and out, and the caller's own account."""

import msgspec
from msgspec import Struct

from mqgate.control.access.accounts import Accounts
from mqgate.control.access.sessions import Sessions
from mqgate.core.errors import InvalidValue
from mqgate.core.times import format_instant
from mqgate.http.exchange import Request, Response, reply
from mqgate.http.json_input import decode
from mqgate.http.operation import describe
from mqgate.http.session_cookie import check_same_origin, clear_cookie, session_token, set_cookie
from mqgate.settings import SessionSettings

__all__ = ["AccessApi"]


class SignInIn(Struct, rename="camel", forbid_unknown_fields=True):
    account: str
    password: str


class SignInOut(Struct, rename="camel"):
    account: str
    role: str
    teams: list[str]
    token: str
    expires_at: str


class MeOut(Struct, rename="camel"):
    name: str
    kind: str
    account: str | None
    teams: list[str]
    producer: str | None
    group: str | None


class SessionOut(Struct, rename="camel"):
    id: str
    current: bool
    created_at: str
    seen_at: str
    address: str
    client: str


class SessionsOut(Struct):
    items: list[SessionOut]
    next: str | None


class PasswordIn(Struct, rename="camel", forbid_unknown_fields=True):
    current: str
    new: str


_sign_in = msgspec.json.Decoder(SignInIn)
_password_in = msgspec.json.Decoder(PasswordIn)
# The beginning of a digest identifies one of at most 20 sessions, and reveals nothing about the token.
_ID_LENGTH = 16


class AccessApi:
    def __init__(self, sessions: Sessions, accounts: Accounts, settings: SessionSettings) -> None:
        self._sessions = sessions
        self._accounts = accounts
        self._settings = settings

    @describe(
        "signIn",
        "access",
        request_type=SignInIn,
        responses={201: SignInOut},
        errors=(401, 403, 429, 507),
        is_public=True,
    )
    async def sign_in(self, request: Request) -> Response:
        """Sign in with an account and a password."""
        scheme = request.scope["scheme"]
        # Otherwise a page could sign its visitor in to an account of its own.
        check_same_origin("POST", request.headers, scheme, is_header_required=False)
        given = decode(request.body, _sign_in)
        account, session, token = await self._sessions.sign_in(
            given.account,
            given.password,
            address=request.address,
            client=request.header(b"user-agent") or "",
            replaces=session_token(request.headers, scheme),
        )
        shown = SignInOut(
            account.name,
            account.role,
            sorted(account.teams),
            token,
            format_instant(session.created_at + self._settings.max_age),
        )
        max_age = int(self._settings.max_age.total_seconds())
        headers = [set_cookie(token, scheme, max_age), (b"cache-control", b"no-store")]
        return reply(201, shown, headers)

    @describe("me", "access", responses={200: MeOut})
    async def me(self, request: Request) -> Response:
        """Show the caller: its kind, and the account and teams of a person."""
        caller = request.principal
        return reply(
            200, MeOut(caller.name, caller.kind, caller.account, sorted(caller.teams), caller.producer, caller.group)
        )

    @describe("listSessions", "access", responses={200: SessionsOut})
    async def sessions(self, request: Request) -> Response:
        """List the caller's sessions, the newest first."""
        found = await self._sessions.list(_account(request))
        items = [
            SessionOut(
                session.digest[:_ID_LENGTH],
                session.digest == request.principal.session,
                format_instant(session.created_at),
                format_instant(session.seen_at),
                session.address,
                session.client,
            )
            for session in found
        ]
        return reply(200, SessionsOut(items, None))

    @describe("signOut", "access", responses={204: None}, errors=(507,))
    async def sign_out(self, request: Request) -> Response:
        """Sign out of this session."""
        await self._sessions.sign_out(_account(request), request.principal.session)
        return Response(204, headers=[clear_cookie(request.scope["scheme"])])

    @describe("signOutEverywhere", "access", responses={204: None}, errors=(507,))
    async def sign_out_everywhere(self, request: Request) -> Response:
        """Sign out of all sessions of the caller."""
        await self._sessions.sign_out_everywhere(_account(request), request.principal.name)
        return Response(204, headers=[clear_cookie(request.scope["scheme"])])

    @describe("changePassword", "access", request_type=PasswordIn, responses={204: None}, errors=(409, 507))
    async def change_password(self, request: Request) -> Response:
        """Change the caller's password, and sign out of all other sessions."""
        account = _account(request)
        given = decode(request.body, _password_in)
        await self._accounts.change_password(
            account, given.current, given.new, session=request.principal.session, address=request.address
        )
        return Response(204)


def _account(request: Request) -> str:
    """Return the account of a person. Raise InvalidValue for an API key and for an open gateway."""
    if request.principal.account is None:
        raise InvalidValue("Only a person who signed in has sessions and a password.")
    return request.principal.account
