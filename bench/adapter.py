"""The adapter of jobqueue for the peer benchmark, and its Django settings: all defaults but the number of threads."""

import os
from pathlib import Path

import adapters._django as base
from adapters._django import *  # noqa: F403 - the peers' common settings

CHECKOUT = Path(__file__).resolve().parent.parent
PATH = (os.environ.get("PYTHONPATH", ""), str(Path(base.__file__).parent.parent), str(CHECKOUT), str(Path(__file__).parent))
ENV = {"PYTHONPATH": os.pathsep.join(PATH)}
PYTHON = "3.13"
PIP = ["django>=6.1", "psycopg[binary,pool]", "cronsim>=2.6"]
VERSION = "checkout"
NOTE = "manage.py runworkers, 8 threads, everything else at its default; CONN_MAX_AGE=None"
INSTALLED_APPS = ["jobqueue"]
TASKS = {"default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []}}
JOBQUEUE = {"TASK_MODULES": ["bench_tasks"]}
DONE_SQL = "select count(*) from jobqueue_job where status = 'SUCCESS'"
BULK = 1000


def enqueue_many(ids):
    """Enqueue one batch."""
    from jobqueue import enqueue_many as many

    many(base.noop, [([i], {}) for i in ids])


def worker(procs):
    """Return one argument list per process to start."""
    slots = ["--min-workers", base.THREADS, "--max-workers", base.THREADS]
    return [["{py}", "-m", "django", "runworkers", *slots, "-v", "1"] for _ in range(procs)]
