"""The limit of one line: only the statements that end a job and take the next of its target, one transaction per job."""

from __future__ import annotations

import time
from typing import Any

import psycopg

KEY = 4_711
PARK = "UPDATE jobqueue_job SET status = 'PENDING', waiting_for = 'target'"
LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
FINISH = (
    "UPDATE jobqueue_job SET status = 'SUCCESS', started_at = coalesce(started_at, now()),"
    " first_started_at = coalesce(first_started_at, now()), finished_at = now(), result = 'null', progress = 100,"
    " worker_ids = worker_ids || to_jsonb(lease_owner), holds_target = false,"
    " lease_owner = '', lease_expires_at = NULL, heartbeat_at = NULL, cancel_requested = false, cancel_outcome = ''"
    " WHERE id = %s AND lease_token = %s AND lease_expires_at IS NOT NULL"
)
HAND_OVER = (
    "UPDATE jobqueue_job SET status = 'RUNNING', waiting_for = '', lease_owner = 'raw', lease_token = lease_token + 1,"
    " lease_expires_at = now() + interval '30 s', heartbeat_at = now(), attempt = attempt + 1, holds_target = true,"
    " cancel_requested = false, cancel_outcome = '', started_at = NULL, message = ''"
    " WHERE id = (SELECT id FROM jobqueue_job WHERE tenant = '' AND target = %s AND status = 'PENDING' AND waiting_for = 'target'"
    " ORDER BY claim_rank, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)"
    " RETURNING id, lease_token, task, queue, args::text, kwargs::text, options::text, metadata::text"
)


def run(connection: psycopg.Connection[Any], jobs: int, target: str = "t0") -> float:
    """Take the parked jobs of a target one after another on a connection in autocommit; return the jobs per second."""
    done = 0
    row = connection.execute(HAND_OVER, [target]).fetchone()
    began = time.perf_counter()
    while row is not None:
        with connection.transaction():
            connection.execute(LOCK, [KEY])
            connection.execute(FINISH, row[:2])
            row = connection.execute(HAND_OVER, [target]).fetchone()
        done += 1
    seconds = time.perf_counter() - began
    if done != jobs:
        raise RuntimeError(f"The line had {done} jobs, not {jobs}")
    return jobs / seconds
