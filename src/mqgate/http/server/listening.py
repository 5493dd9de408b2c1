"""Listening sockets."""

import socket

__all__ = ["BACKLOG", "listen"]

BACKLOG = 2048


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Return sockets that share one address; the kernel distributes connections. Raise OSError if it is in use."""
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
            # With port 0 the first socket determines the port of all.
            port = listener.getsockname()[1]
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port") from error
    return listeners
