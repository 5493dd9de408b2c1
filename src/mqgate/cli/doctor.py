"""`mqgate doctor`: diagnostics of the gateway, this machine and the stores."""

import asyncio
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from mqgate import __version__
from mqgate.cli.check import Check
from mqgate.cli.config_option import config_option
from mqgate.cli.output import as_json, examples, table
from mqgate.cli.session import Session, with_session
from mqgate.client import Client, GatewayUnreachable
from mqgate.client.errors import Reply
from mqgate.client.requests import Call
from mqgate.core.addresses import is_loopback

__all__ = ["check_clock", "check_keys", "check_parts", "check_version", "doctor"]

# The Date header has a resolution of one second, and a server may update it once a second.
_TOLERATED_SKEW = timedelta(seconds=5)
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403


@click.command(
    epilog=examples(
        "mqgate doctor", "mqgate doctor --config mqgate.toml", "mqgate --url http://mq.example:8080 --json doctor"
    )
)
@config_option("mqgate.toml of the gateway; its RocketMQ cluster and Redis are checked too.")
@with_session
def doctor(session: Session, config: Path | None) -> None:
    """Check the gateway, this machine, and the RocketMQ cluster and Redis of the settings.

    Settings are read as by `mqgate serve`: --config, ./mqgate.toml, MQGATE_ variables. The exit code is 1 if a check
    failed, and 0 if there are only warnings.
    """
    with session.connect() as client:
        checks = [*_check_machine(), *_check_gateway(session, client), *_check_stores(config)]
    if session.is_json:
        click.echo(as_json({"checks": [asdict(check) for check in checks]}))
    else:
        click.echo(table([asdict(check) for check in checks], ("status", "check", "detail")))
    if any(check.status == "fail" for check in checks):
        raise click.exceptions.Exit(1)


def _check_machine() -> Iterator[Check]:
    yield Check(check="mqgate", status="ok", detail=f"this command is {__version__}")
    yield Check(check="python", status="ok", detail=platform.python_version())
    if find_spec("apsw") is not None:
        import apsw  # noqa: PLC0415 - only the server needs it

        yield Check(check="sqlite", status="ok", detail=apsw.sqlite_lib_version())


def _check_gateway(session: Session, client: Client) -> Iterator[Check]:
    try:
        live = _get(client, "/livez")
        yield Check(check="reachable", status="ok", detail=f"{session.url} responds")
        yield _check_live(live)
        yield from check_parts(_get(client, "/readyz"))
        yield check_clock(live.headers.get("date"), datetime.now(UTC))
        info = _get(client, "/v1/info")
        yield check_keys(
            session.url,
            has_key=session.key is not None,
            anonymous_status=_get(client, "/v1/info", is_anonymous=True).status,
            own_status=info.status,
        )
        yield check_version(_members(info).get("version"))
    except GatewayUnreachable as error:
        yield Check(check="reachable", status="fail", detail=error.detail)


def _get(client: Client, path: str, *, is_anonymous: bool = False) -> Reply:
    return client.send(Call(method="GET", path=path, is_anonymous=is_anonymous))


def _check_stores(config: Path | None) -> Iterator[Check]:
    """Check RocketMQ and Redis if the settings use them. Without settings, check nothing."""
    if config is None and not {"MQGATE_MESSAGES_ENGINE", "MQGATE_LOG_ENGINE"} & set(os.environ):
        return
    from mqgate.settings import Settings, SettingsInvalid  # noqa: PLC0415 - only the server needs it

    try:
        settings = Settings.load(config)
        yield from (Check(check="settings", status="warn", detail=note) for note in settings.deprecations)
        # They import the adapters, which are not needed to check the gateway alone.
        if settings.messages.engine == "rocketmq":
            from mqgate.cli import doctor_rocketmq  # noqa: PLC0415 - see above

            yield from asyncio.run(doctor_rocketmq.run_checks(settings))
        if settings.leases.engine == "redis":
            from mqgate.cli import doctor_redis  # noqa: PLC0415 - see above

            yield from asyncio.run(doctor_redis.run_checks(settings.redis))
    except SettingsInvalid as error:
        yield from (Check(check="settings", status="fail", detail=fault) for fault in error.faults)


def _check_live(live: Reply) -> Check:
    is_live = live.status == _OK
    return Check(check="live", status="ok" if is_live else "fail", detail=f"/livez returned {live.status}")


def check_parts(ready: Reply) -> Iterator[Check]:
    """Check whether the gateway and each of its parts are ready."""
    is_ready = ready.status == _OK
    yield Check(check="ready", status="ok" if is_ready else "fail", detail=f"/readyz returned {ready.status}")
    parts = _members(ready).get("parts", {})
    for part, state in parts.items() if isinstance(parts, dict) else ():
        yield Check(check=f"ready: {part}", status="ok" if state == "ok" else "fail", detail=str(state))


def check_clock(date: str | None, now: datetime) -> Check:
    """Compare the clocks of the gateway and this machine. The gateway compares instants with its own clock."""
    if date is None:
        return Check(check="clock", status="warn", detail="the gateway sends no Date header")
    try:
        skew = now - parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return Check(check="clock", status="warn", detail=f"the Date header of the gateway is invalid: {date}")
    seconds = skew.total_seconds()
    if abs(skew) <= _TOLERATED_SKEW:
        return Check(check="clock", status="ok", detail="the clocks of this machine and the gateway agree")
    direction = "ahead of" if seconds > 0 else "behind"
    return Check(
        check="clock",
        status="warn",
        detail=f"this machine is {abs(seconds):.0f} s {direction} the gateway; the gateway uses its own clock",
    )


def check_keys(url: str, *, has_key: bool, anonymous_status: int, own_status: int) -> Check:
    """Check whether API keys are in use, and whether the given key is accepted."""
    if anonymous_status != _UNAUTHORIZED:
        is_local = is_loopback(urlsplit(url).hostname or "")
        return Check(
            check="keys",
            status="ok" if is_local else "warn",
            detail="no keys: every client has full access; create one with mqgate key create --admin",
        )
    if not has_key:
        return Check(check="keys", status="fail", detail="a key is required: set MQGATE_KEY")
    if own_status == _UNAUTHORIZED:
        return Check(check="keys", status="fail", detail="the key is unknown or has expired")
    kind = "a producer or group key" if own_status == _FORBIDDEN else "accepted"
    return Check(check="keys", status="ok", detail=f"keys are in use; the given key is {kind}")


def check_version(version: Any) -> Check:
    """Compare the versions of this command and the gateway."""
    if not isinstance(version, str):
        return Check(check="version", status="warn", detail="the gateway does not report its version")
    if version == __version__:
        return Check(check="version", status="ok", detail=f"the gateway and this command are {version}")
    return Check(check="version", status="warn", detail=f"the gateway is {version}, this command {__version__}")


def _members(response: Reply) -> Mapping[str, Any]:
    try:
        body = json.loads(response.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
