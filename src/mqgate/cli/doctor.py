"""`mqgate doctor`: is the gateway there, is it well, and do we fit together."""

import asyncio
import ipaddress
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import apsw
import click
import httpx

from mqgate import __version__
from mqgate.cli.check import Check
from mqgate.cli.output import as_json, examples, table
from mqgate.cli.session import Session, with_session
from mqgate.client import Client, GatewayUnreachable
from mqgate.settings import Settings, SettingsInvalid

__all__ = ["check_clock", "check_keys", "check_parts", "check_version", "doctor"]

# The Date header counts whole seconds, and a server may write it once a second.
_TOLERATED_SKEW = timedelta(seconds=5)
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403


@click.command(
    epilog=examples(
        "mqgate doctor", "mqgate doctor --config mqgate.toml", "mqgate --url http://mq.example:8080 --json doctor"
    )
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="MQGATE_CONFIG",
    help="The gateway's mqgate.toml: the RocketMQ cluster and the Redis that it names are checked as well.",
)
@with_session
def doctor(session: Session, config: Path | None) -> None:
    """Check the gateway and this machine, and the RocketMQ cluster and the Redis that the settings name.

    Settings are found as by `mqgate serve`: --config, ./mqgate.toml, MQGATE_ variables. The exit code is 1 if a
    check failed; a warning alone leaves it 0.
    """
    with session.connect() as client:
        checks = [*_of_this_machine(), *_of_the_gateway(session, client), *_of_the_stores(config)]
    if session.is_json:
        click.echo(as_json({"checks": [asdict(check) for check in checks]}))
    else:
        click.echo(table([asdict(check) for check in checks], ("status", "check", "detail")))
    if any(check.status == "fail" for check in checks):
        raise click.exceptions.Exit(1)


def _of_this_machine() -> Iterator[Check]:
    yield Check(check="mqgate", status="ok", detail=f"this command is {__version__}")
    yield Check(check="python", status="ok", detail=platform.python_version())
    yield Check(check="sqlite", status="ok", detail=apsw.sqlite_lib_version())


def _of_the_gateway(session: Session, client: Client) -> Iterator[Check]:
    send = client.transport.send
    try:
        live = send("GET", "/livez")
        yield Check(check="reachable", status="ok", detail=f"{session.url} answers")
        yield _check_live(live)
        yield from check_parts(send("GET", "/readyz"))
        yield check_clock(live.headers.get("Date"), datetime.now(UTC))
        info = send("GET", "/v1/info")
        yield check_keys(
            session.url,
            has_key=session.key is not None,
            anonymous_status=send("GET", "/v1/info", is_anonymous=True).status_code,
            own_status=info.status_code,
        )
        yield check_version(_members(info).get("version"))
    except GatewayUnreachable as error:
        yield Check(check="reachable", status="fail", detail=error.detail)


def _of_the_stores(config: Path | None) -> Iterator[Check]:
    """Nothing to say unless there are settings, and they name RocketMQ, or Redis with it."""
    if config is None and Path("mqgate.toml").exists():
        config = Path("mqgate.toml")
    if config is None and not {"MQGATE_MESSAGES_ENGINE", "MQGATE_LOG_ENGINE"} & set(os.environ):
        return
    try:
        settings = Settings.load(config)
        yield from (Check(check="settings", status="warn", detail=note) for note in settings.deprecations)
        # They bring the adapters: not for everybody who only asks how the gateway is.
        if settings.messages.engine == "rocketmq":
            from mqgate.cli import doctor_rocketmq  # noqa: PLC0415 - see above

            yield from asyncio.run(doctor_rocketmq.examine(settings))
        if settings.leases.engine == "redis":
            from mqgate.cli import doctor_redis  # noqa: PLC0415 - see above

            yield from asyncio.run(doctor_redis.examine(settings.redis))
    except SettingsInvalid as error:
        yield from (Check(check="settings", status="fail", detail=fault) for fault in error.faults)


def _check_live(live: httpx.Response) -> Check:
    is_live = live.status_code == _OK
    return Check(check="live", status="ok" if is_live else "fail", detail=f"/livez says {live.status_code}")


def check_parts(ready: httpx.Response) -> Iterator[Check]:
    """Whether the gateway takes work, and which of its parts say otherwise."""
    is_ready = ready.status_code == _OK
    yield Check(check="ready", status="ok" if is_ready else "fail", detail=f"/readyz says {ready.status_code}")
    parts = _members(ready).get("parts", {})
    for part, state in parts.items() if isinstance(parts, dict) else ():
        yield Check(check=f"ready: {part}", status="ok" if state == "ok" else "fail", detail=str(state))


def check_clock(date: str | None, now: datetime) -> Check:
    """How far the gateway's clock and ours are apart; instants we send are judged by the gateway's."""
    if date is None:
        return Check(check="clock", status="warn", detail="the gateway sends no Date")
    try:
        skew = now - parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return Check(check="clock", status="warn", detail=f"the gateway's Date is no date: {date}")
    seconds = skew.total_seconds()
    if abs(skew) <= _TOLERATED_SKEW:
        return Check(check="clock", status="ok", detail="this machine and the gateway agree")
    direction = "ahead of" if seconds > 0 else "behind"
    return Check(
        check="clock",
        status="warn",
        detail=f"this machine is {abs(seconds):.0f} s {direction} the gateway, whose clock decides",
    )


def check_keys(url: str, *, has_key: bool, anonymous_status: int, own_status: int) -> Check:
    """Whether keys are in use, and whether ours fits."""
    if anonymous_status != _UNAUTHORIZED:
        is_local = _is_loopback(httpx.URL(url).host)
        return Check(
            check="keys",
            status="ok" if is_local else "warn",
            detail="no keys: whoever reaches the gateway may do everything (mqgate key create --admin)",
        )
    if not has_key:
        return Check(check="keys", status="fail", detail="keys are in use and none was given: set MQGATE_KEY")
    if own_status == _UNAUTHORIZED:
        return Check(check="keys", status="fail", detail="the gateway does not know the key, or it has expired")
    kind = "a producer's or a group's" if own_status == _FORBIDDEN else "accepted"
    return Check(check="keys", status="ok", detail=f"keys are in use, ours is {kind}")


def check_version(version: Any) -> Check:
    """Whether this command and the gateway are the same release."""
    if not isinstance(version, str):
        return Check(check="version", status="warn", detail="the gateway does not tell us its version")
    if version == __version__:
        return Check(check="version", status="ok", detail=f"the gateway is {version}, as this command is")
    return Check(check="version", status="warn", detail=f"the gateway is {version}, this command {__version__}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _members(response: httpx.Response) -> Mapping[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
