"""The MU header: what opens the dialect's admin calls, and that nothing else does."""

import base64
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from mq_badge import KEY, sealed
from mq_surface import Mq

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
    ("badge", "said"),
    [
        (None, "no permission!"),
        ("", "no permission!"),
        ("not base64", "access denied!"),
        (base64.b64encode(b"fifteen bytes..").decode(), "access denied!"),
        (sealed("ann@example.com", PUBLIC_KEY), "access denied!"),
        (sealed("no address"), "access denied!"),
    ],
)
async def test_every_mutating_call_wants_a_badge(mq: Mq, path: str, badge: str | None, said: str) -> None:
    """The original guards two of the three addresses and takes whatever decrypts; all are shut here."""
    headers = {} if badge is None else {"MU": badge}

    answer = await mq.call("POST", path, json={"consumer": "C", "pause": 1}, headers=headers)

    assert answer == {"status": 500, "message": said}
    assert (await mq.get("config/C"))["result"]["pause"] is False


def test_the_badge_is_what_existing_consoles_send() -> None:
    """The recorded header of the original, with its well-known key: the same cipher, padding and coding."""
    assert MuHeader(PUBLIC_KEY).check(b"R7Wq7nd2uceLXL+vNjHSnA==") == "admin@admin.com"


def test_without_a_cipher_key_no_badge_opens_anything() -> None:
    """Off is the default: nobody inherits the original's well-known key."""
    with pytest.raises(Refusal, match=r"no permission! .* set \[mq\] cipher_key"):
        MuHeader(MqSettings().cipher_key).check(b"R7Wq7nd2uceLXL+vNjHSnA==")


def test_the_well_known_key_is_never_accepted() -> None:
    """It is in the original's public source: with it everybody could write badges."""
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
