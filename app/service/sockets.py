"""The address that the service listens on: found free, or an error that names it."""

from __future__ import annotations

import os
import socket
from typing import Any


def free_address(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """The family, and the address as its sockets have it, with a port if 0 was asked for.  Raises OSError if it is taken."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            return family, (address[0], alone.getsockname()[1], *address[2:])
    except OSError as error:
        raise not_listening(host, port, error) from None


def not_listening(host: str, port: int, error: OSError) -> OSError:
    """The error, naming the address."""
    reason = error.strerror if isinstance(error, socket.gaierror) or error.errno is None else os.strerror(error.errno)
    return OSError(error.errno, reason, f"cannot listen on {f'[{host}]' if ':' in host else host}:{port}")
