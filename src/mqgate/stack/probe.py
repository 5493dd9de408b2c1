"""Does the name server lead clients to this broker? One request of RocketMQ's protocol, no more."""

import json
import socket
import struct

__all__ = ["is_listed"]

_GET_ROUTE = 105
# At least 401, or the answer is not JSON.
_VERSION = 479
_PATIENCE = 5.0


def is_listed(name_server: tuple[str, int], broker: str, address: str) -> bool:
    """Whether the route of the topic that every broker has, named like it, holds the address."""
    fields = {"topic": broker, "acceptStandardJsonOnly": "true"}
    header = json.dumps(
        {"code": _GET_ROUTE, "language": "PYTHON", "version": _VERSION, "opaque": 1, "flag": 0, "extFields": fields}
    ).encode()
    try:
        with socket.create_connection(name_server, _PATIENCE) as connection, connection.makefile("rb") as stream:
            connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
            total, header_size = struct.unpack(">II", stream.read(8))
            answer = stream.read(total - 4)
    except (OSError, struct.error):
        return False
    if json.loads(answer[: header_size & 0xFFFFFF])["code"] != 0:
        return False
    brokers = json.loads(answer[header_size & 0xFFFFFF :])["brokerDatas"]
    return any(address in each["brokerAddrs"].values() for each in brokers)
