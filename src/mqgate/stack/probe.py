"""Readiness probes of a broker: its registration and its runtime information. One remoting request each.

A starting broker registers only at name servers to which it is already connected, and otherwise ten seconds later. When
its permission is set, it registers again.
"""

import json
import socket
import struct

__all__ = ["is_listed", "is_starting", "register"]

_UPDATE_BROKER_CONFIG = 25
_GET_RUNTIME_INFO = 28
_SYSTEM_ERROR = 1
_GET_ROUTE = 105
# Below 401, the response is not JSON.
_VERSION = 479
_TIMEOUT = 5.0


def is_listed(name_server: tuple[str, int], broker: str, address: str) -> bool:
    """Return whether the name server returns the address of the broker. Every broker has a topic of its own name."""
    fields = {"topic": broker, "acceptStandardJsonOnly": "true"}
    code, body = _request(name_server, _GET_ROUTE, fields)
    brokers = json.loads(body)["brokerDatas"] if code == 0 else ()
    return any(address in entry["brokerAddrs"].values() for entry in brokers)


def is_starting(broker: tuple[str, int]) -> bool:
    """Return whether a broker cannot report its runtime information yet, as in its first second."""
    return _request(broker, _GET_RUNTIME_INFO, {})[0] == _SYSTEM_ERROR


def register(broker: tuple[str, int], permission: str = "6") -> None:
    """Make a broker register at its name servers now. A broker that refuses the request registers later.

    `permission` is the current permission of the broker, by default read and write.
    """
    _request(broker, _UPDATE_BROKER_CONFIG, {}, f"brokerPermission={permission}".encode())


def _request(server: tuple[str, int], code: int, fields: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """Return the code and the body of the response, or code -1 if there is none."""
    header = json.dumps(
        {"code": code, "language": "PYTHON", "version": _VERSION, "opaque": 1, "flag": 0, "extFields": fields}
    ).encode()
    try:
        with socket.create_connection(server, _TIMEOUT) as connection, connection.makefile("rb") as stream:
            connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
            total, header_size = struct.unpack(">II", stream.read(8))
            response = stream.read(total - 4)
    except (OSError, struct.error):
        return -1, b""
    header_size &= 0xFFFFFF
    return int(json.loads(response[:header_size])["code"]), response[header_size:]
