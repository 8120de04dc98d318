"""The address that the service listens on: checked to be free, or an error that names it."""

from __future__ import annotations

import os
import socket
from typing import Any


def resolve_address(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """Return (family, socket address) of a free address; port 0 takes any free port.  Raises OSError if it is in use."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return family, (address[0], probe.getsockname()[1], *address[2:])
    except OSError as error:
        raise listen_error(host, port, error) from None


def listen_error(host: str, port: int, error: OSError) -> OSError:
    """The same error with a message that names the address."""
    reason = error.strerror if isinstance(error, socket.gaierror) or error.errno is None else os.strerror(error.errno)
    return OSError(error.errno, reason, f"cannot listen on {f'[{host}]' if ':' in host else host}:{port}")
