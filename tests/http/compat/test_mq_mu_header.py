"""The MU header, which admin calls of the dialect require."""

import base64
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from mq_calls import Mq
from mu_headers import KEY, encrypt_mu_header

from mqgate import bootstrap
from mqgate.http.compat.mq.envelope import Refusal
from mqgate.http.compat.mq.mu_header import MuHeader
from mqgate.settings import MqSettings, Settings, SettingsInvalid, SqliteSettings

PUBLIC_KEY = "DJs32jslkdghDSDf"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        sqlite=SqliteSettings(directory=str(tmp_path / "data"), tidy_interval=timedelta(hours=1)),
        mq=MqSettings(cipher_key=KEY),
    )


CALLS = ["consumer/config", "consumer/unregister?consumer=C", "unregister?consumer=C"]


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize(
    ("mu_header", "message"),
    [
        (None, "no permission!"),
        ("", "no permission!"),
        ("not base64", "access denied!"),
        (base64.b64encode(b"fifteen bytes..").decode(), "access denied!"),
        (encrypt_mu_header("ann@example.com", PUBLIC_KEY), "access denied!"),
        (encrypt_mu_header("no address"), "access denied!"),
    ],
)
async def test_every_mutating_call_requires_the_mu_header(
    mq: Mq, path: str, mu_header: str | None, message: str
) -> None:
    """The original checks two of the three paths and accepts any text that decrypts."""
    headers = {} if mu_header is None else {"MU": mu_header}

    response = await mq.call("POST", path, json={"consumer": "C", "pause": 1}, headers=headers)

    assert response == {"status": 500, "message": message}
    assert (await mq.get("config/C"))["result"]["pause"] is False


def test_the_mu_header_of_existing_consoles_is_accepted() -> None:
    """A recorded header of the original is decrypted with its key."""
    assert MuHeader(PUBLIC_KEY).check(b"R7Wq7nd2uceLXL+vNjHSnA==") == "admin@admin.com"


def test_without_a_cipher_key_every_mu_header_is_refused() -> None:
    """Admin calls are disabled by default."""
    with pytest.raises(Refusal, match=r"no permission! .* set \[mq\] cipher_key"):
        MuHeader(MqSettings().cipher_key).check(b"R7Wq7nd2uceLXL+vNjHSnA==")


def test_the_well_known_key_is_never_accepted() -> None:
    """It is public, so anyone could create valid headers."""
    with pytest.raises(SettingsInvalid, match="cipher_key"):
        Settings.load(None, environment={"MQGATE_MQ_CIPHER_KEY": PUBLIC_KEY})


async def test_a_cipher_key_without_the_cipher_stops_the_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who sets the key must not find out at the first admin call that a package is missing."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)

    with pytest.raises(SettingsInvalid, match=r"pip install mqgate\[mq-admin\]"):
        async with bootstrap.gateway(settings):
            pass
