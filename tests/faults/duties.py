"""A duty that records each of its acts with worker and term; every worker of the fault tests finds it.

What it attempts goes through a connection of its own, without jobqueue's fence; its allowed writes go through the fence.
"""

from __future__ import annotations

import os
import threading
import warnings

import psycopg
from django.db import connection

from jobqueue import duty, duty_transaction
from jobqueue.models import BackgroundJobLease

NAME = "term_log"
TABLES = (
    "CREATE TABLE term_acts (id bigserial PRIMARY KEY, pid int, what text, at timestamptz DEFAULT clock_timestamp())",
    "CREATE TABLE term_writes (id bigserial PRIMARY KEY, pid int, holder text, acquired_at timestamptz)",
)

if "FAULTS_TERM_LOG" in os.environ:
    hold_seconds = float(os.environ["FAULTS_TERM_LOG"])

    @duty(name=NAME, interval=0.05)
    def write_down() -> int:
        """Act once."""
        with psycopg.connect(os.environ["FAULTS_TERM_DSN"], autocommit=True) as own:
            own.execute("INSERT INTO term_acts (pid, what) VALUES (%s, 'begin')", [os.getpid()])
            with duty_transaction(), connection.cursor() as cursor:
                lease = BackgroundJobLease.objects.get(pk=NAME)
                own.execute("INSERT INTO term_acts (pid, what) VALUES (%s, 'inside')", [os.getpid()])
                cursor.execute("SELECT pg_sleep(%s)", [hold_seconds])
                cursor.execute(
                    "INSERT INTO term_writes (pid, holder, acquired_at) VALUES (%s, %s, %s)",
                    [os.getpid(), lease.held_by_worker_id, lease.lease_acquired_at],
                )
        return 1


if "FAULTS_FORKING_DUTY" in os.environ:

    @duty(name="forking", interval=0.1)
    def fork() -> None:
        """Write down which process acts, and fork without an end of the child."""
        with open(os.environ["FAULTS_FORKING_DUTY"], "a") as log:
            log.write(f"{os.getpid()}\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the worker has
            child = os.fork()
        if child:
            os.waitpid(child, 0)


if "FAULTS_HANGING_DUTY" in os.environ:

    @duty(name="hanging", interval=0.1)
    def hang() -> None:
        """Never return."""
        with open(os.environ["FAULTS_HANGING_DUTY"], "a") as log:
            log.write("hangs")
        threading.Event().wait()
