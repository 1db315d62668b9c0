"""Resolve a name to another address each time, in a worker that loads this module with its tasks."""

from __future__ import annotations

import itertools
import socket
from typing import Any

NAME = "rebind.test"
ALLOWED, INSIDE = "127.0.0.1", "127.0.0.9"

_real = socket.getaddrinfo
_turns = itertools.cycle((ALLOWED, INSIDE))


def _resolve(host: Any, *args: Any, **options: Any) -> Any:
    return _real(next(_turns) if host in (NAME, NAME.encode()) else host, *args, **options)


socket.getaddrinfo = _resolve
