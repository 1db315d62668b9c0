"""Drop the connections of a parent process in a child that it has forked.

If the child closed such a connection, it would end the session of the parent. If the child used it, the messages
of both processes would be mixed.

A child cannot use the parent's SQLite files at all, not even by a new connection. SQLite keeps the locks of a file
for all connections of a process, and the child inherits this record. So it waits for a lock that a thread of its
parent held at the fork, and that nothing in the child releases. Or it takes a lock for its own that only its parent
has, and can then damage the file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import weakref
from typing import Any

from django.db import NotSupportedError, connections
from django.db.backends.signals import connection_created

_made: weakref.WeakSet[Any] = weakref.WeakSet()
_kept: list[Any] = []  # the dropped objects, so that the garbage collector does not close them


def _note(*, connection: Any, **_: Any) -> None:
    _made.add(connection)


connection_created.connect(_note, dispatch_uid="jobqueue.dropping")


def drop_connections() -> None:
    """Forget the connections of all threads; the next statement makes a new one.

    The network sockets of PostgreSQL are also replaced, because a session and its locks exist as long as any
    process has the socket open.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    servers, files = set(), set()
    for wrapper in {*_made, *connections.all(initialized_only=True)}:
        raw = wrapper.connection
        if wrapper.vendor == "sqlite" and not wrapper.is_in_memory_db():
            files.add(wrapper.settings_dict["NAME"])
        pools = getattr(wrapper, "_connection_pools", None) or {}
        idle = [raw_connection for pool in pools.values() for raw_connection in getattr(pool, "_pool", ())]
        for raw_connection in (raw, *idle):
            with contextlib.suppress(Exception):  # SQLite has no socket, and a closed connection has none
                number = raw_connection.fileno()
                with contextlib.suppress(OSError):
                    servers.add(_peer(number))
                os.dup2(nothing, number, inheritable=False)
        _kept.extend((raw, *pools.values()))
        if pools:
            pools.clear()
        wrapper.connection = None
        wrapper.in_atomic_block = wrapper.closed_in_transaction = wrapper.needs_rollback = False
        wrapper.savepoint_ids, wrapper.atomic_blocks, wrapper.run_on_commit = [], [], []
    # A connection that another thread was opening at the fork belongs to no object yet. It is found by the address of
    # its server.
    for number in _sockets():
        with contextlib.suppress(OSError):
            if _peer(number) in servers:
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
    if files:
        _refuse(files)


def _refuse(files: set[Any]) -> None:
    """Make each attempt to open one of these SQLite files fail in this process."""
    from django.db.backends.sqlite3.base import DatabaseWrapper

    def get_connection_params(self: Any) -> Any:
        if self.settings_dict["NAME"] in files:
            raise NotSupportedError(
                f"{self.settings_dict['NAME']} is open in the process that forked this one, and SQLite supports no use of such a file"
                " after a fork. Start the process with subprocess, or with multiprocessing.get_context('spawn')."
            )
        return usual(self)

    usual = DatabaseWrapper.get_connection_params
    DatabaseWrapper.get_connection_params = get_connection_params  # type: ignore[method-assign]


def _peer(number: int) -> object:
    """Return the address of the server that a socket is connected to."""
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.getpeername()


def _sockets() -> list[int]:
    """Return the descriptors of this process that are sockets."""
    descriptors = []
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                descriptors.append(int(name))
    return descriptors
