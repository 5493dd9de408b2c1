"""Credentials of people and operators."""

from dataclasses import dataclass
from datetime import timedelta

from mqgate.settings.option import option

__all__ = ["AdminSettings", "SessionSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    key_file: str = option(
        "", "file with an API key that is admin; if it does not exist, a new key is written to it at the start"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    idle_timeout: timedelta = option(timedelta(hours=12), "time without a request after which a session ends")
    max_age: timedelta = option(timedelta(days=7), "time after its sign-in at which a session ends")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    own: bool = option(False, "whether operators may approve applications of their own")
    auto: tuple[str, ...] = option(
        (), "applications that are approved at once: a kind such as seek, or a kind and a team such as topic:payments"
    )
