"""The table of the endpoints, the only source of URLs, methods, permissions and the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest

from jobqueue.api import activity, bulk, deliveries, health, logs, rerun, samples, schedules, schema, views
from jobqueue.api.endpoint import Endpoint
from jobqueue.api.operator_shapes import RERUN_BODY
from jobqueue.api.params import Given
from jobqueue.api.streams import endpoints
from jobqueue.api.views import Handler, Reply
from jobqueue.insight.samples import KINDS
from jobqueue.lifecycle import control


def openapi(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the description of this API, with the base path of the request's URL as its server."""
    return 200, schema.document(ENDPOINTS, server=request.path.removesuffix("openapi.json"))


ALL_VIEWS: Final = ("view_job", "view_queue", "view_worker")
VERBS: Final = (
    ("cancel", "Stop a job for good; a running one is asked to stop.", control.cancel, (200, 202)),
    ("pause", "Stop a job so that it can be resumed; a running one is asked to stop.", control.pause, (200, 202)),
    ("resume", "Resume a job that is paused or in error; withdraw the request to stop from one that is stopping.", control.resume, (200,)),
    ("run_now", "Run a scheduled job now.", control.run_now, (200,)),
)


def _on_job(method: str, path: str, verb: str, summary: str, do: Any, done: tuple[int, ...] = (200,)) -> Endpoint:
    name = "job" if method == "DELETE" else f"{'target_' if path.startswith('targets/') else ''}job_{verb}"
    return Endpoint(
        *(method, path, name, summary, views.act(verb, do), "Answer", ("view_job", f"{verb}_job"), ("tenant",)),
        success_statuses=done,
        can_be_refused=True,
    )


def _stream(path: str, name: str, summary: str, handler: Handler) -> Endpoint:
    query = ("tenant", "snapshot", "last_event_id")
    return Endpoint("GET", path, name, summary, handler, "StreamEvent", query=query, can_be_refused=True, streams=True)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint("GET", "openapi.json", "openapi", "This document.", openapi, "", (), public=True),
    Endpoint("GET", "jobs/", "jobs", "Search for jobs, the newest first.", views.list_jobs, "Jobs", query=("q", "limit", "after")),
    Endpoint("GET", "jobs/{job_id}/", "job", "The report on a job, and why it waits.", views.show_job, "Job", query=("tenant",)),
    Endpoint(
        *("POST", "jobs/{job_id}/rerun/", "job_rerun", "Enqueue a copy of a job that has ended.", rerun.run_job_again, "Rerun"),
        permissions=("view_job", "requeue_job"),
        query=("tenant",),
        body=RERUN_BODY,
        success_statuses=(201,),
        can_be_refused=True,
    ),
    Endpoint(
        *("GET", "jobs/{job_id}/log/", "job_log", "What a job has logged, the oldest line first.", logs.show_log, "Log"),
        permissions=("view_job", "view_job_log"),
        query=("tenant", "level", "attempt", "limit", "after"),
    ),
    _on_job("DELETE", "jobs/{job_id}/", "delete", "Delete a job; a running one is refused.", control.delete),
    *(
        _on_job("POST", f"{place}jobs/{{job_id}}/{verb.replace('_', '-')}/", verb, summary, do, done)
        for place in ("", "targets/{target}/")
        for verb, summary, do, done in VERBS
    ),
    Endpoint(
        *("GET", "targets/", "targets", "The targets that a job holds, blocks or waits for.", views.list_targets, "Targets"),
        query=("search", "tenant", "limit"),
    ),
    Endpoint(
        *("GET", "errors/", "errors", "The kinds of errors of the jobs in ERROR, the most frequent first.", views.list_errors, "Errors"),
        query=("limit",),
    ),
    Endpoint(
        *("POST", "bulk/", "bulk", "Change all jobs that a search finds; with dry_run=1 only count them.", bulk.request_action, "Bulk"),
        query=("verb", "q", "dry_run"),
        required=("verb", "q"),
        success_statuses=(200, 202),
    ),
    Endpoint("GET", "bulk/{bulk_id}/", "bulk_action", "The state of a bulk action.", bulk.show_action, "BulkAction"),
    Endpoint(
        *("POST", "bulk/{bulk_id}/stop/", "bulk_stop", "Stop a bulk action after its present batch.", bulk.stop_action, "BulkAction"),
        success_statuses=(202,),
        can_be_refused=True,
    ),
    Endpoint(
        *("GET", "health/", "health", "The problems of the installation; 503 if one is severe.", health.show_health, "Health", ALL_VIEWS),
        query=("fail_on",),
        fails=True,
    ),
    Endpoint(
        *("GET", "status/", "status", "The queues, the live workers, and the jobs in each state.", health.show_status, "Status", ALL_VIEWS),
    ),
    _stream("jobs/{job_id}/events/", "job_events", "Stream the events of a job.", endpoints.of_job),
    _stream("targets/{target}/events/", "target_events", "Stream the events of the jobs of a target.", endpoints.of_target),
    _stream("events/", "events", "Stream the events of all jobs, or of those of a tenant.", endpoints.of_all),
    Endpoint(
        "GET", "workers/", "workers", "The workers that are alive, and the last that left.", views.list_workers, "Workers", ("view_worker",)
    ),
    Endpoint(
        *("GET", "workers/{worker}/", "worker", "One worker, with the jobs that it runs.", views.show_worker, "WorkerDetail"),
        permissions=("view_worker", "view_job"),
    ),
    *(
        Endpoint(
            *("POST", f"workers/{{worker}}/{verb}/", f"worker_{verb}", summary, views.drain(drained=verb == "drain"), "WorkerDrain"),
            permissions=("view_worker", "drain_worker"),
        )
        for verb, summary in (
            ("drain", "Drain a worker: it starts no more jobs, and its running jobs continue."),
            ("undrain", "Make a drained worker start jobs again."),
        )
    ),
    Endpoint(
        "GET",
        "queues/",
        "queues",
        "The queues, with the numbers of jobs that wait and run in each.",
        views.list_queues,
        "Queues",
        ("view_queue",),
    ),
    *(
        Endpoint(
            *("GET", f"samples/{kind}s/", f"samples_{kind}s", f"The load of each {kind} in the last five minutes."),
            *(samples.recent_loads(kind), "Loads", ("view_queue",)),
        )
        for kind in KINDS
    ),
    *(
        Endpoint(
            *("GET", f"samples/{kind}s/{{{kind}}}/", f"samples_{kind}", f"The load of one {kind} over time."),
            *(samples.series(kind), "Series", ("view_queue",), ("period",)),
        )
        for kind in KINDS
    ),
    Endpoint(
        *("GET", "deliveries/", "deliveries", "The webhook deliveries, the newest first.", deliveries.list_deliveries, "Deliveries"),
        permissions=("view_webhookdelivery",),
        query=("delivery_status", "limit", "after"),
    ),
    Endpoint(
        *("GET", "deliveries/{delivery}/", "delivery", "One delivery with its attempts.", deliveries.show_delivery, "DeliveryDetail"),
        permissions=("view_webhookdelivery",),
    ),
    *(
        Endpoint(
            *(
                "POST",
                f"deliveries/{{delivery}}/{verb}/",
                f"delivery_{verb.replace('-', '_')}",
                summary,
                deliveries.act(verb),
                "DeliveryAnswer",
            ),
            permissions=("view_webhookdelivery", f"{permission}_webhookdelivery"),
            can_be_refused=True,
        )
        for verb, (_, permission, summary) in deliveries.VERBS.items()
    ),
    Endpoint(
        *("POST", "queues/{queue}/test-webhook/", "queue_test_webhook", "Send a test to the webhook of a queue."),
        *(deliveries.test_webhook, "WebhookTest", ("view_queue", "set_webhook_queue")),
        can_be_refused=True,
    ),
    Endpoint("GET", "schedules/", "schedules", "The schedules.", schedules.list_schedules, "Schedules", ("view_schedule",)),
    Endpoint(
        *("GET", "schedules/{schedule}/", "schedule", "One schedule with its history.", schedules.show_schedule, "ScheduleDetail"),
        permissions=("view_schedule", "view_job"),
    ),
    Endpoint(
        *("GET", "activity/", "activity", "Who did what to which object, the newest first.", activity.list_activity, "Activity"),
        permissions=("view_auditrecord",),
        query=("actor", "did", "job", "since", "before", "limit", "after"),
    ),
    Endpoint(
        *("GET", "scaler/", "scaler", "How many slots each queue needs.", samples.scaler, "Scaler", ("view_queue",), ("within",)),
    ),
    Endpoint(
        *("GET", "metrics/", "metrics", "The metrics for Prometheus.", samples.metrics, "Metrics", ("view_queue",)),
        content_type="text/plain",
    ),
    *(
        Endpoint(
            *("POST", f"queues/{{queue}}/{verb}/", f"queue_{verb}", summary, views.act_on_queue(verb), "Queue"),
            permissions=("view_queue", f"{verb}_queue"),
            query=("until",) if verb == "pause" else (),
        )
        for verb, summary in (
            ("pause", "Pause a queue: workers start none of its jobs, and running jobs continue."),
            ("resume", "Resume a queue: workers start its jobs again."),
        )
    ),
)
