"""``python -m bench.pages``: the milliseconds of each page of the admin and each list of the REST API on a large table.

It fills a database of its own by SQL. With PGHOST and PGDATABASE set, it measures the tables of that database, and fills
them first if they are empty.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import psutil

from bench.cluster import Cluster

GOALS: Final = ((1_000_000, 300), (10_000_000, 500))  # milliseconds up to this number of jobs
REPEATS: Final = 5
ADMIN: Final = "/admin/jobqueue/"
# Each page by its name. `{last}` is the newest job, `{failed}` one in ERROR, `{open}` an old one that is QUEUED.
ADMIN_PAGES: Final[dict[str, str]] = {
    **{f"Overview, {period}": f"?range={period}" for period in ("1h", "24h", "14d")},
    "Overview, the part that is read again": "job/overview/",
    "Jobs": "job/",
    "Jobs, oldest first": "job/?o=1",
    "Jobs, page 101": "job/?p=101",
    **{f"Jobs, {status}": f"job/?status={status}" for status in ("QUEUED", "PENDING", "RUNNING", "PAUSED", "ERROR", "SUCCESS", "CANCELED")},
    **{f"Jobs, waiting for {reason}": f"job/?waiting={reason}" for reason in ("time", "target", "children")},
    "Jobs, a queue": "job/?queue=queue-7",
    "Jobs, QUEUED of a queue": "job/?queue=queue-7&status=QUEUED",
    "Jobs, ERROR of a queue": "job/?queue=queue-7&status=ERROR",
    "Jobs, an unknown queue": "job/?queue=nobody",
    "Jobs, a task": "job/?task=shop.tasks.task_7",
    "Jobs, RUNNING of a task": "job/?task=shop.tasks.task_7&status=RUNNING",
    "Jobs, an unknown task": "job/?task=nobody",
    "Jobs, a tenant": "job/?tenant=acme",
    "Jobs, an unknown tenant": "job/?tenant=nobody",
    "Jobs, a target": "job/?target=customer:7",
    "Jobs, an unknown target": "job/?target=nobody",
    "Jobs, ended in the last day": "job/?ended_within=86400",
    "Jobs, ERROR in the last hour": "job/?ended_within=3600&status=ERROR",
    "Jobs, a queue, task and status": "job/?queue=queue-7&task=shop.tasks.task_8&status=SUCCESS",
    **{
        f"Jobs, search {text}": f"job/?q={text.replace(' ', '+').replace(chr(34), '%22')}"
        for text in (
            *("{last}", "{open}", "task_7", "order_id={last}", "order_id={open}", "order_id=0", "args.user.id=7", "kwargs.user.id=7"),
            *('error:"kind 7"', 'error:"nobody"', "target:customer:7", "task:task_7 since:2h", "queue:queue-7 until:2h", "worker:web-7:7"),
            *("release:r1", "release:none", "tenant:acme status:QUEUED", "user.id=7 status:ERROR", "nobody"),
        )
    },
    "Job, SUCCESS": "job/{last}/change/",
    "Job, ERROR": "job/{failed}/change/",
    "Job, QUEUED": "job/{open}/change/",
    "Job, run again": "job/{failed}/rerun/",
    "Job, deletion": "job/{open}/act/delete/",
    "Job, history": "job/{open}/history/",
    "Errors": "job/errors/",
    "Errors, a kind": "job/errors/{kind}/",
    "Targets": "job/targets/",
    "Targets, stuck": "job/targets/?stuck=1",
    "Targets, search": "job/targets/?q=customer:7",
    "Targets, search without a result": "job/targets/?q=nobody",
    **{f"Tasks, {period}": f"job/tasks/?range={period}" for period in ("1h", "24h")},
    **{f"Task, {period}": f"job/tasks/shop.tasks.task_7/?range={period}" for period in ("1h", "24h", "14d")},
    "Queues": "queue/",
    **{f"Queue, {period}": f"queue/queue-7/change/?range={period}" for period in ("1h", "24h", "14d")},
    "Queue, unknown": "queue/nobody/change/",
    "Queue, webhook": "queue/webhook/?queue=queue-7",
    "Workers": "worker/",
    "Worker": "worker/00000000-0000-4000-8000-000000000007/change/",
    "Duties": "backgroundjoblease/",
    "Schedules": "schedule/",
    "Schedules, failing": "schedule/?failing=1",
    "Schedule": "schedule/{schedule}/change/",
    "Schedule, new": "schedule/add/",
    "Webhooks": "webhookdelivery/",
    **{f"Webhooks, {status}": f"webhookdelivery/?status={status}" for status in ("PENDING", "DELIVERED", "FAILED")},
    "Webhooks, retried": "webhookdelivery/?status=PENDING&retried=1",
    "Webhooks, ended in the last hour": "webhookdelivery/?status=FAILED&ended_within=3600",
    "Webhooks, of a job": "webhookdelivery/?q={failed}",
    "Webhooks, of a job without": "webhookdelivery/?q=1",
    "Webhook": "webhookdelivery/{delivery}/change/",
    "Activity": "auditrecord/",
    "Activity, a user": "auditrecord/?user=user-7",
    "Activity, a verb": "auditrecord/?verb=cancel",
    "Activity, a user and a verb": "auditrecord/?user=user-7&verb=cancel",
    "Bulk actions": "job/bulk/",
    "Bulk action": "job/bulk/{bulk}/",
    **{
        f"Confirmation, {verb} {text}": f"job/bulk/new/?verb={verb}&q={text.replace(' ', '+').replace(chr(34), '%22')}"
        for verb, text in (
            *(("cancel", "queue:queue-7"), ("cancel", "queue:nobody"), ("delete", "queue:queue-7"), ("delete", "task:task_7")),
            *(("resume", "status:ERROR"), ("resume", "status:ERROR queue:queue-7"), ("resume", "kind:{kind} status:ERROR")),
            *(("cancel", "status:QUEUED"), ("delete", "status:SUCCESS since:2h"), ("run_now", "waiting:time"), ("delete", "tenant:acme")),
            *(("resume", "order_id={failed}"), ("cancel", "user.id=7"), ("resume", 'error:"kind 7"'), ("cancel", "target:customer:7")),
        )
    },
}
REST_LISTS: Final[dict[str, str]] = {
    "REST jobs": "jobs/",
    **{
        f"REST jobs, {text}": f"jobs/?q={text.replace(' ', '+').replace(chr(34), '%22')}"
        for text in (
            *("status:QUEUED", "status:ERROR", "status:SUCCESS", "queue:queue-7", "queue:nobody", "task:task_7", "task:nobody"),
            *("tenant:acme", "tenant:nobody", "target:customer:7", "target:nobody", "order_id={last}", "order_id={open}", "order_id=0"),
            *("user.id=7", 'error:"kind 7"', "error:nobody", "queue:queue-7 since:2h", "ended:1h", "release:r1", "worker:web-7:7"),
        )
    },
    "REST job": "jobs/{failed}/",
    "REST log of a job": "jobs/{failed}/log/",
    **{f"REST {name}": f"{name}/" for name in ("targets", "errors", "health", "status", "workers", "queues", "deliveries", "schedules")},
    **{f"REST {name}": f"{name}/" for name in ("activity", "scaler", "metrics", "samples/queues", "samples/tasks")},
    "REST samples of a queue": "samples/queues/queue-7/",
    "REST deliveries, FAILED": "deliveries/?status=FAILED",
}


class Time(NamedTuple):
    """The milliseconds of a page: the first request, the median of the later ones, and their processor time; and its statements.

    The processor time is that of this process and of its connection's server process, so other load changes it little.
    """

    name: str
    url: str
    status: int
    cold: float
    warm: float
    processor: float
    statements: int


def addresses(values: dict[str, Any]) -> dict[str, str]:
    """Return the address of each page, by its name."""
    pages = {name: f"{ADMIN}{url}" for name, url in ADMIN_PAGES.items()} | {name: f"/jobqueue/{url}" for name, url in REST_LISTS.items()}
    return {name: re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), url) for name, url in pages.items()}


def known() -> dict[str, Any]:
    """Return the numbers of the rows that `addresses` names."""
    from jobqueue.models import BulkAction, Job, Schedule, WebhookDelivery

    jobs = Job.objects.order_by("pk")
    failed = jobs.filter(status="ERROR").values_list("pk", "error_key").first() or (0, "")
    return {
        "last": jobs.filter(status="SUCCESS").values_list("pk", flat=True).last(),
        "failed": failed[0],
        "kind": failed[1],
        "open": jobs.filter(status="QUEUED").values_list("pk", flat=True).first(),
        "schedule": Schedule.objects.values_list("pk", flat=True).first(),
        "delivery": WebhookDelivery.objects.order_by("pk").values_list("pk", flat=True).first(),
        "bulk": BulkAction.objects.order_by("pk").values_list("pk", flat=True).first(),
    }


def measure(client: Any, name: str, url: str) -> Time:
    """Request a page several times; what the process keeps for a few seconds is forgotten before each."""
    from django.db import connection

    from jobqueue.core import recent

    times: list[float] = []
    sent: list[str] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append(sql)
        return execute(sql, params, many, context)

    server = psutil.Process(connection.connection.info.backend_pid)
    cpu = 0.0
    for _ in range(REPEATS + 1):
        recent.forget()
        if len(times) == 1:
            cpu = _processor_seconds(server)
        with connection.execute_wrapper(count):
            began = time.perf_counter()
            status = client.get(url, follow=True).status_code
            times.append(1000 * (time.perf_counter() - began))
    cpu = 1000 * (_processor_seconds(server) - cpu) / REPEATS
    return Time(name, url, status, times[0], statistics.median(times[1:]), cpu, len(sent) // len(times))


def _processor_seconds(server: psutil.Process) -> float:
    used = server.cpu_times()
    return time.process_time() + float(used.user + used.system)


def main() -> int:
    """Fill a database if necessary, measure each page, and print the table; 1 if one is above the goal."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pages", description="Measure the pages of the admin and the lists of the REST API."
    )
    parser.add_argument("--jobs", type=int, default=1_000_000, help="how many jobs (default 1000000)")
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if "PGHOST" not in os.environ:
            cluster = stack.enter_context(Cluster())
            cluster.create("pages")
            os.environ.update(cluster.environment("pages"))
        found = [*_measured(options.jobs, options.only)]
    goal = next((most for jobs, most in GOALS if options.jobs <= jobs), GOALS[-1][1])
    load = os.getloadavg()[0]
    print(f"\nMilliseconds of pages with {options.jobs:,} jobs; * is above {goal} ms. Load average: {load:.1f}.\n")
    print("| Page | Cold | Warm | Processor | Statements |\n|---|---:|---:|---:|---:|")
    for one in sorted(found, key=lambda one: -one.warm):
        wrong = "" if one.status in (200, 503) else f" (HTTP {one.status})"
        marks = ["*" if value > goal else "" for value in (one.cold, one.warm)]
        print(f"| {one.name}{wrong} | {one.cold:.0f}{marks[0]} | {one.warm:.0f}{marks[1]} | {one.processor:.0f} | {one.statements} |")
    return int(any(max(one.cold, one.warm) > goal for one in found))


def _measured(jobs: int, only: str) -> Iterator[Time]:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.page_settings"
    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import connection
    from django.test import Client

    from bench import page_rows
    from jobqueue.models import Job

    call_command("migrate", verbosity=0)
    users: Any = get_user_model().objects
    user = users.filter(username="bench").first() or users.create_superuser("bench", "", "bench")
    if not Job.objects.exists():
        began = time.monotonic()
        with connection.cursor() as cursor:
            page_rows.fill(cursor.execute, jobs)
            cursor.execute("VACUUM ANALYZE")
            cursor.execute("CHECKPOINT")
        print(f"filled in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    client = Client()
    client.force_login(user)
    client.get(f"{ADMIN}schedule/add/")  # the first request of a process compiles templates and imports modules
    for name, url in addresses(known()).items():
        if only in name:
            one = measure(client, name, url)
            print(
                f"{one.warm:6.0f} {one.cold:6.0f} {one.processor:6.0f} {one.statements:4} {one.status} {name}", file=sys.stderr, flush=True
            )
            yield one


if __name__ == "__main__":
    sys.exit(main())
