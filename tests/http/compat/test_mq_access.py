"""Access to /mq: its clients have no keys, so their network decides."""

from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from mq_calls import Mq

from mqgate import bootstrap
from mqgate.bootstrap import Gateway
from mqgate.control.access.keys import KeySpec
from mqgate.settings import HttpSettings, MqSettings, Settings, SqliteSettings

NO_PERMISSION = {"status": 500, "message": "no permission!"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=timedelta(hours=1)),
        mq=MqSettings(anonymous_from=("10.1.0.0/16", "fd00::/8")),
    )


@pytest.fixture
async def locked(mq: Mq, gateway: Gateway) -> Gateway:
    """A gateway with one API key."""
    await gateway.credentials.keys.create(KeySpec(role="admin"), "test")
    return gateway


async def from_address(gateway: Gateway, address: str, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=gateway.app, client=(address, 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return await http.post(f"/mq/{path}", headers=headers)


@pytest.mark.parametrize(
    ("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.1.2.3", 200), ("192.0.2.1", 500)]
)
async def test_without_keys_loopback_and_the_listed_networks_are_served(
    mq: Mq, gateway: Gateway, address: str, status: int
) -> None:
    """The gateway listens on loopback then. An address that a trusted proxy reports is not made local by the proxy."""
    response = await from_address(gateway, address, "produce?producer=P&message=m")

    assert response.json()["status"] == status


async def test_the_last_key_deleted_through_another_gateway_does_not_open_the_dialect(tmp_path: Path) -> None:
    """A gateway that listens beyond loopback stays closed without any key; `/v1` does, and `/mq` must too."""
    store = SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=timedelta(hours=1))
    async with bootstrap.gateway(Settings(sqlite=store)) as local:
        key, _ = await local.credentials.keys.create(KeySpec(role="admin"), "test")
    public = Settings(sqlite=store, http=HttpSettings(host="192.0.2.7"))
    async with bootstrap.gateway(public) as gateway:
        snapshot = gateway.registry.snapshot
        # What another gateway, which listens on loopback, is allowed to do.
        gateway.credentials.keys._may_be_open = True
        await gateway.credentials.keys.delete(key.id, "test")
        gateway.credentials.keys._may_be_open = False

        response = await from_address(gateway, "127.0.0.1", "produce?producer=P&message=m")

        assert snapshot.keys
        assert not gateway.registry.snapshot.keys
        assert response.json() == NO_PERMISSION


@pytest.mark.parametrize("address", ["10.1.2.3", "fd00::1", "::ffff:10.1.2.3"])
async def test_with_keys_the_listed_networks_need_none(locked: Gateway, address: str) -> None:
    """Existing clients go on unchanged from where the operator expects them, on either kind of socket."""
    response = await from_address(locked, address, "produce?producer=P&message=m")

    assert response.json()["status"] == 200


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
async def test_with_keys_other_networks_are_refused(locked: Gateway, address: str, path: str) -> None:
    """The name of a producer must not be enough to publish from anywhere."""
    response = await from_address(locked, address, path)

    assert response.status_code == 200
    assert response.json() == NO_PERMISSION


@pytest.mark.parametrize("path", ["clustering/queue/offset?consumer=C", "config/C", "nowhere"])
async def test_reads_from_other_networks_are_refused(locked: Gateway, path: str) -> None:
    """Offsets, settings and even the existence of paths are not public."""
    transport = httpx.ASGITransport(app=locked.app, client=("10.2.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        response = await http.get(f"/mq/{path}")

    assert response.json() == NO_PERMISSION


async def test_a_forwarded_header_grants_no_access(locked: Gateway) -> None:
    """Any client can send X-Forwarded-For. It is shown to operators only."""
    forged = {"x-forwarded-for": "10.1.2.3", "x-real-ip": "10.1.2.3"}

    response = await from_address(locked, "192.0.2.1", "produce?producer=P&message=m", **forged)

    assert response.json() == NO_PERMISSION
