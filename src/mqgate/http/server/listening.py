"""Listening sockets."""

import socket

__all__ = ["BACKLOG", "listen"]

BACKLOG = 2048


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Sockets that share one address, over which the kernel spreads connections; OSError if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            listeners.append(listener := socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if count > 1:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind((host, port))
            listener.setblocking(False)
            # Where any port would do, the first one decides.
            port = listener.getsockname()[1]
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port") from error
    return listeners
