"""Does the name server lead clients to this broker, and does it know itself? One request of RocketMQ's protocol each.

A broker that comes up announces itself only to name servers that it is connected to by then, which is a matter of luck,
and else ten seconds later. When its own permission is set, it announces itself anew.
"""

import json
import socket
import struct

__all__ = ["announce", "is_hesitating", "is_listed"]

_UPDATE_BROKER_CONFIG = 25
_GET_RUNTIME_INFO = 28
_SYSTEM_ERROR = 1
_GET_ROUTE = 105
# At least 401, or the answer is not JSON.
_VERSION = 479
_PATIENCE = 5.0


def is_listed(name_server: tuple[str, int], broker: str, address: str) -> bool:
    """Whether the route of the topic that every broker has, named like it, holds the address."""
    fields = {"topic": broker, "acceptStandardJsonOnly": "true"}
    code, body = _ask(name_server, _GET_ROUTE, fields)
    brokers = json.loads(body)["brokerDatas"] if code == 0 else ()
    return any(address in each["brokerAddrs"].values() for each in brokers)


def is_hesitating(broker: tuple[str, int]) -> bool:
    """Whether a broker cannot tell of itself yet, as in its first second; nobody trusts it before."""
    return _ask(broker, _GET_RUNTIME_INFO, {})[0] == _SYSTEM_ERROR


def announce(broker: tuple[str, int], permission: str = "6") -> None:
    """Let a broker tell name servers of itself, now; one that does not take orders does it in its own time.

    `permission` is the one it has, by default to be read and written.
    """
    _ask(broker, _UPDATE_BROKER_CONFIG, {}, f"brokerPermission={permission}".encode())


def _ask(server: tuple[str, int], request: int, fields: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """The code and the body of the answer; a code that stands for nothing if there is none."""
    header = json.dumps(
        {"code": request, "language": "PYTHON", "version": _VERSION, "opaque": 1, "flag": 0, "extFields": fields}
    ).encode()
    try:
        with socket.create_connection(server, _PATIENCE) as connection, connection.makefile("rb") as stream:
            connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
            total, header_size = struct.unpack(">II", stream.read(8))
            answer = stream.read(total - 4)
    except (OSError, struct.error):
        return -1, b""
    header_size &= 0xFFFFFF
    return int(json.loads(answer[:header_size])["code"]), answer[header_size:]
