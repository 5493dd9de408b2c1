"""The admin key of `[admin] key_file`, so that a first key exists without a command."""

import contextlib
import os
import re
from pathlib import Path

import structlog

from mqgate.control.access.keys import ApiKeys, KeySpec, digest_of, new_key_text, parse_key
from mqgate.core.entries import Snapshot
from mqgate.settings import AdminSettings, SettingsInvalid

__all__ = ["ensure_admin_key"]

_FORMAT = re.compile(r"mqk_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
_log = structlog.get_logger()


async def ensure_admin_key(settings: AdminSettings, keys: ApiKeys, seen: Snapshot) -> None:
    """Register the key in the file as an admin key. Write a new key to the file if it does not exist."""
    if not settings.key_file:
        return
    path = Path(settings.key_file)
    text = _read(path)
    key_id, secret = parse_key(text)
    stored = seen.keys.get(key_id)
    if stored is not None:
        if stored.digest != digest_of(secret) or stored.role != "admin":
            raise SettingsInvalid([f"[admin] key_file {path} contains the id of another key: use another file"])
        return
    await keys.create(KeySpec(role="admin", name="key file"), "[admin] key_file", text)
    _log.info("admin key registered", key=key_id, file=str(path))


def _read(path: Path) -> str:
    """Return the key in a file. If there is none, write a new one; a concurrent gateway's file is kept."""
    try:
        with contextlib.suppress(FileExistsError):
            # The mode is set before the key is written.
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            os.write(descriptor, f"{new_key_text()}\n".encode())
            os.close(descriptor)
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid([f"[admin] key_file {path}: {type(error).__name__}"]) from error
    if not _FORMAT.fullmatch(text):
        raise SettingsInvalid([f"[admin] key_file {path} must contain one key, as `mqgate key create` prints it"])
    return text
