"""The rows of a large installation, by SQL: 90 busy queues and 90 tasks, 300 kinds of errors, open jobs of every age.

`fill` writes as many jobs as are wanted, and the other tables in proportion. Each run writes the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

QUEUES: Final = 90
KINDS: Final = 300
WORKERS: Final = 30
BATCH: Final = 250_000
SPANS: Final = ((10, 360), (60, 1440), (900, 1344))  # the rings of samples: the seconds and the number of the spans

# The state of job `n`, in parts per thousand; the rest succeeded. At most 240 in the middle are RUNNING.
STATE: Final = """CASE
  WHEN n BETWEEN {jobs} / 2 AND {jobs} / 2 + least(239, {jobs} / 1000) THEN 'RUNNING'
  WHEN n %% 1000 < 100 THEN 'QUEUED'
  WHEN n %% 1000 < 150 THEN 'ERROR'
  WHEN n %% 1000 < 200 THEN 'CANCELED'
  WHEN n %% 1000 < 220 THEN 'PENDING time'
  WHEN n %% 1000 < 250 THEN 'PENDING target'
  WHEN n %% 1000 < 251 THEN 'PENDING children'
  WHEN n %% 1000 < 255 THEN 'PAUSED'
  ELSE 'SUCCESS' END"""
ERROR: Final = """jsonb_build_array(jsonb_build_object('attempt', 1, 'outcome', 'ERROR', 'exception', 'builtins.ValueError',
  'message', 'ValueError: kind ' || n %% {kinds} || ' of order ' || n, 'started_at', at, 'finished_at', at,
  'release', 'r' || n %% 3, 'traceback', repeat('File "/srv/shop/tasks.py", line 7, in charge' || chr(10), 20)))"""
JOBS: Final = """
INSERT INTO jobqueue_job (tenant, queue, task, args, kwargs, priority, status, waiting_for, run_at, created_at, enqueued_at,
  first_started_at, started_at, finished_at, target, holds_target, attempt, failures, max_attempts, lease_owner, lease_expires_at,
  heartbeat_at, message, error_key, result, history, worker_ids)
SELECT CASE n %% 50 WHEN 0 THEN 'acme' ELSE '' END, 'queue-' || n %% {queues}, 'shop.tasks.task_' || n / 7 %% {queues},
  jsonb_build_array(n), jsonb_build_object('order_id', n, 'user', jsonb_build_object('id', n %% 1000)), n %% 3, split_part(state, ' ', 1),
  split_part(state, ' ', 2), CASE state WHEN 'PENDING time' THEN now() + n %% 86400 * interval '1 second' + interval '1 minute' END, at,
  at, begun, begun, CASE WHEN state IN ('SUCCESS', 'ERROR', 'CANCELED') THEN at + interval '2 seconds' END,
  CASE WHEN state = 'PENDING target' THEN 'customer:' || n %% 500
    WHEN state = 'ERROR' AND n %% 1000 = 120 THEN 'customer:' || n / 1000 %% 50 ELSE '' END, false,
  CASE WHEN begun IS NULL THEN 0 ELSE 1 END, CASE state WHEN 'ERROR' THEN 1 ELSE 0 END, 1,
  CASE state WHEN 'RUNNING' THEN worker ELSE '' END, CASE state WHEN 'RUNNING' THEN now() + interval '1 day' END,
  CASE state WHEN 'RUNNING' THEN now() END,
  CASE state WHEN 'ERROR' THEN 'ValueError: kind ' || n %% {kinds} || ' of order ' || n ELSE '' END,
  CASE state WHEN 'ERROR' THEN substr(md5((n %% {kinds})::text), 1, 16) ELSE '' END,
  CASE state WHEN 'SUCCESS' THEN jsonb_build_object('sent', n) END, CASE state WHEN 'ERROR' THEN {error} ELSE '[]' END,
  CASE WHEN begun IS NULL THEN '[]' ELSE jsonb_build_array(worker) END
FROM (SELECT n, state, at, '00000000-0000-4000-8000-' || lpad((n %% {workers})::text, 12, '0') AS worker,
    CASE WHEN state IN ('SUCCESS', 'ERROR', 'RUNNING') THEN at + interval '1 second' END AS begun
  FROM (SELECT n, now() - ({jobs} - n) * (interval '14 days' / {jobs}) - interval '2 seconds' AS at, {state} AS state
    FROM generate_series({first}, {last}) AS n) AS numbers) AS jobs"""
EVENTS: Final = """INSERT INTO jobqueue_jobevent (job_id, name, at, attempt, data)
SELECT id, 'job.completed', finished_at, 1, '{{}}' FROM jobqueue_job WHERE finished_at IS NOT NULL"""
LOGS: Final = """INSERT INTO jobqueue_joblog (job_id, attempt, at, first, last, level, lines)
SELECT id, 1, finished_at, 1, 2, 30, '[[0, 20, "shop", "Charged."], [5, 30, "shop", "Slow."]]' FROM jobqueue_job
WHERE finished_at IS NOT NULL AND id %% 5 = 0"""
DELIVERIES: Final = """INSERT INTO jobqueue_webhookdelivery (message_id, job_id, event, queue, url, status, attempts, created_at,
  next_attempt_at, finished_at, error)
SELECT gen_random_uuid(), n, 'job.completed', 'queue-' || n %% {queues}, 'https://shop.example/hooks/', state,
  CASE WHEN n %% 3 = 0 THEN 2 ELSE 0 END, now(), now() + interval '1 hour', CASE state WHEN 'PENDING' THEN NULL ELSE now() END,
  CASE WHEN n %% 3 = 0 THEN 'timed out' ELSE '' END
FROM (SELECT n, CASE WHEN n %% 40 = 0 THEN 'FAILED' WHEN n %% 40 = 20 THEN 'PENDING' ELSE 'DELIVERED' END AS state
  FROM generate_series(20, {jobs}, 20) AS n) AS numbers"""
AUDIT: Final = """INSERT INTO jobqueue_auditrecord (at, actor, name, source, verb, object, model, key, job_id, verdict)
SELECT now() - n * interval '1 minute', 'user-' || n %% 20, 'user-' || n %% 20, 'admin', (ARRAY['cancel', 'retry', 'pause'])[1 + n %% 3],
  'job ' || n, 'job', n, n, 'done' FROM generate_series(100, {jobs}, 100) AS n"""
SAMPLES: Final = """INSERT INTO jobqueue_sample (kind, name, seconds, slot, begins, queued, running, oldest_seconds, enqueued, succeeded,
  failed, canceled, wait_seconds, run_seconds, waits, runs)
SELECT kind, CASE kind WHEN 'queue' THEN 'queue-' ELSE 'shop.tasks.task_' END || k, {seconds}, begins / {seconds} %% {slots}, begins,
  k, 3, 5, 20, 18, 1, 1, 9, 9, (SELECT string_agg(value, ',') FROM (SELECT CASE WHEN b > 8 THEN '3' ELSE '0' END AS value
  FROM generate_series(0, 28) AS b) AS counts), '0,0,0,0,0,0,0,0,0,0,0,0,20'
FROM generate_series(0, {queues} - 1) AS k, (VALUES ('queue'), ('task')) AS kinds(kind),
  (SELECT (floor(extract(epoch FROM now()) / {seconds})::bigint - s) * {seconds} AS begins
    FROM generate_series(1, {spans}) AS s) AS spans"""
REST: Final = (
    """INSERT INTO jobqueue_queue (name, paused, max_running, webhook_url)
SELECT 'queue-' || k, k %% 30 = 7, CASE k %% 30 WHEN 8 THEN 5 END, '' FROM generate_series(0, {queues} - 1) AS k""",
    """INSERT INTO jobqueue_worker (id, host, pid, slots, running, stuck, release, heartbeat_at, started_at)
SELECT ('00000000-0000-4000-8000-' || lpad(k::text, 12, '0'))::uuid, 'web-' || k, k, 8, 8, CASE k %% 10 WHEN 3 THEN 1 ELSE 0 END,
  'r' || k %% 3, now() + interval '1 day', now() - interval '1 hour' FROM generate_series(0, {workers} - 1) AS k""",
    """INSERT INTO jobqueue_leftworker (worker, host, pid, how)
SELECT gen_random_uuid(), 'web-' || k, k, 'stopped' FROM generate_series(1, 50) AS k""",
    """INSERT INTO jobqueue_schedule (name, task, cron, time_zone, next_at, last_error, retry_at)
SELECT 'schedule-' || k, 'shop.tasks.task_' || k %% {queues}, '0 * * * *', 'UTC', now() + k * interval '1 minute',
  CASE k %% 20 WHEN 3 THEN 'no such task' ELSE '' END, CASE k %% 20 WHEN 3 THEN now() END FROM generate_series(1, 100) AS k""",
    """INSERT INTO jobqueue_scheduletick (schedule_id, nominal_at, job_id)
SELECT s.id, date_trunc('hour', now()) - k * interval '1 hour', k FROM jobqueue_schedule AS s, generate_series(1, 300) AS k""",
    """INSERT INTO jobqueue_backgroundjoblease (job_name, held_by_worker_id, lease_acquired_at, heartbeat_at)
SELECT 'duty-' || k, '00000000-0000-4000-8000-000000000001', now(), now() FROM generate_series(1, 12) AS k""",
    """INSERT INTO jobqueue_bulkaction (verb, query, upto_id, counted, state, finished_at)
SELECT 'cancel', 'queue:queue-' || k, {jobs}, 10, 'DONE', now() FROM generate_series(1, 60) AS k""",
)


def statements(jobs: int, samples: float = 1.0) -> Iterator[str]:
    """Yield the statements that fill empty tables with this number of jobs, and with a share of all samples."""
    values: dict[str, Any] = {"jobs": jobs, "queues": QUEUES, "kinds": KINDS, "workers": WORKERS}
    parts = {name: text.format(**values) for name, text in (("state", STATE), ("error", ERROR))}
    for first in range(1, jobs + 1, BATCH):
        yield JOBS.format(**values, **parts, first=first, last=min(first + BATCH - 1, jobs))
    for seconds, slots in SPANS:
        yield SAMPLES.format(**values, seconds=seconds, slots=slots, spans=max(int(slots * samples), 1))
    for text in (EVENTS, LOGS, DELIVERIES, AUDIT, *REST):
        yield text.format(**values)


def fill(execute: Any, jobs: int, samples: float = 1.0) -> None:
    """Fill empty tables by `execute`, which runs a statement with parameters."""
    for sql in statements(jobs, samples):
        execute(sql, [])
