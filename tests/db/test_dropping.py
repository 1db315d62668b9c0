"""The connections that the child of a fork inherits."""

from __future__ import annotations

import os
import socket
import stat
import warnings
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection

from jobqueue.db import dropping

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


def status_of_child(act: Callable[[], bool]) -> int:
    """Return 0 if a function is true in a child, else 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this process has threads
        child = os.fork()
    if child == 0:
        try:
            os._exit(0 if act() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_socket(number: int) -> bool:
    return stat.S_ISSOCK(os.fstat(number).st_mode)


def test_a_child_keeps_no_connection_to_the_server_and_all_other_sockets() -> None:
    connection.ensure_connection()
    settings = connection.settings_dict
    place = {"host": settings["HOST"], "port": int(settings["PORT"] or 5432), "user": settings["USER"], "dbname": settings["NAME"]}
    here, there = socket.socketpair()
    # Opened past Django: as one that another thread is still opening, no object of Django's has it.
    with psycopg.connect(**place) as another, socket.create_server(("127.0.0.1", 0)) as listening, here, there:
        client = socket.create_connection(listening.getsockname())

        own = connection.connection.fileno()  # here: a worker that ran in this process before drops it in each child by itself

        def keeps_the_others_alone() -> bool:
            dropping.drop_connections()
            kept = (here.fileno(), there.fileno(), listening.fileno(), client.fileno())
            return [is_socket(one) for one in (own, another.fileno(), *kept)] == [False, False, True, True, True, True]

        with client:
            assert status_of_child(keeps_the_others_alone) == 0
        another.execute("SELECT 1")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
