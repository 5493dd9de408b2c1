"""Who may use /mq once there are keys: its clients have none, so their network decides."""

from pathlib import Path

import httpx
import pytest
from mq_surface import Mq

from mqgate.bootstrap import Gateway
from mqgate.settings import MqSettings, Settings, SqliteSettings

NO_PERMISSION = {"status": 500, "message": "no permission!"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=3600.0),
        mq=MqSettings(anonymous_from=("10.1.0.0/16", "fd00::/8")),
    )


@pytest.fixture
async def locked(mq: Mq, gateway: Gateway) -> Gateway:
    """The gateway after its first key was made."""
    await gateway.access.create(producer=None, group=None, role="admin", expires_at=None, actor="test")
    return gateway


async def from_address(gateway: Gateway, address: str, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=gateway.app, client=(address, 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://mqgate") as http:
        return await http.post(f"/mq/{path}", headers=headers)


async def test_without_keys_everybody_who_can_connect_is_served(mq: Mq, gateway: Gateway) -> None:
    """The server is open then, and listens on loopback only."""
    answer = await from_address(gateway, "192.0.2.1", "produce?producer=P&message=m")

    assert answer.json()["status"] == 200


@pytest.mark.parametrize("address", ["10.1.2.3", "fd00::1", "::ffff:10.1.2.3"])
async def test_with_keys_the_listed_networks_need_none(locked: Gateway, address: str) -> None:
    """Existing clients go on unchanged from where the operator expects them, on either kind of socket."""
    answer = await from_address(locked, address, "produce?producer=P&message=m")

    assert answer.json()["status"] == 200


@pytest.mark.parametrize("address", ["10.2.0.1", "127.0.0.1", "::1", "::ffff:10.2.0.1", "", "testclient"])
@pytest.mark.parametrize(
    "path",
    [
        "produce?producer=P&message=m",
        "message?topic=T&consumer=C",
        "ack?topic=T&consumer=C",
        "unlock?topic=T&consumer=C",
        "unregister?consumer=C",
    ],
)
async def test_with_keys_everybody_else_is_shut_out(locked: Gateway, address: str, path: str) -> None:
    """Knowing a producer's name must not be enough to write to its topic from anywhere."""
    answer = await from_address(locked, address, path)

    assert answer.status_code == 200
    assert answer.json() == NO_PERMISSION


@pytest.mark.parametrize("path", ["clustering/queue/offset?consumer=C", "config/C", "nowhere"])
async def test_looking_is_shut_out_too(locked: Gateway, path: str) -> None:
    """Offsets and settings are not for strangers, and neither is what addresses there are."""
    transport = httpx.ASGITransport(app=locked.app, client=("10.2.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://mqgate") as http:
        answer = await http.get(f"/mq/{path}")

    assert answer.json() == NO_PERMISSION


async def test_a_header_cannot_move_a_stranger_into_the_network(locked: Gateway) -> None:
    """Anybody can write X-Forwarded-For: it is shown to operators, never decided on."""
    forged = {"x-forwarded-for": "10.1.2.3", "x-real-ip": "10.1.2.3"}

    answer = await from_address(locked, "192.0.2.1", "produce?producer=P&message=m", **forged)

    assert answer.json() == NO_PERMISSION
