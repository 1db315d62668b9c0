"""Connections for the services of a worker. They are separate from those that tasks of the user's project use."""

from __future__ import annotations

import copy
import os
import socket
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from jobqueue.db.fast_path import plans

# The longest silence of the network before a reserved connection counts as dead.
SILENCE_SECONDS = 15
RESERVED = {"connect_timeout": 10, "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3}


def reserve(alias: str, purpose: str, *, keep_plans: bool) -> BaseDatabaseWrapper:
    """Give this thread a separate PostgreSQL connection: no pool, READ COMMITTED, short time-outs for a silent network."""
    shared = connections[alias]
    settings = copy.deepcopy(shared.settings_dict)
    options = settings["OPTIONS"]
    options.pop("pool", None)
    options.update({key: value for key, value in RESERVED.items() if key not in options})
    options.setdefault("tcp_user_timeout", SILENCE_SECONDS * 1000)
    options["application_name"] = f"jobqueue {purpose}"
    options["isolation_level"] = read_committed()
    if keep_plans:
        plans.keep(options)
    settings["CONN_MAX_AGE"], settings["CONN_HEALTH_CHECKS"] = None, False
    reserved = connections[alias] = type(shared)(settings, alias=alias)
    return reserved


def read_committed() -> Any:
    """Return the driver's name of the isolation level."""
    from psycopg import IsolationLevel

    return IsolationLevel.READ_COMMITTED


def cut_network(raw: Any) -> None:
    """Cut the network of a driver's connection. A thread other than the one that uses it calls this."""
    if raw is not None and not raw.closed:
        with socket.socket(fileno=os.dup(raw.fileno())) as network:
            network.shutdown(socket.SHUT_RDWR)


def close_idle() -> None:
    """Close this thread's connections, so that a thread that only waits holds none. Keep those that are in a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
