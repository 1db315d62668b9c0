"""The shapes of the API's responses, as JSON Schema: a response has each of the fields, and no other."""

from __future__ import annotations

from typing import Final

from jobqueue.api.operator_shapes import OPERATOR_SHAPES
from jobqueue.api.shape_parts import (
    ANYTHING,
    COUNT,
    FLAG,
    MOMENT,
    OBJECT,
    PHASE_STATES,
    SECONDS,
    STATUS,
    TEXT,
    UUID,
    Shape,
    array,
    described,
    nullable,
    record,
    ref,
)
from jobqueue.core import states

ENTRY_FIELDS: Final[dict[str, Shape]] = {
    "attempt": nullable({"type": "integer"}),
    **dict.fromkeys(("worker", "outcome", "exception", "message", "abandoned", "release", "started_at", "finished_at"), nullable(TEXT)),
}

FIGURES: Final[dict[str, Shape]] = {
    "at": described(MOMENT, "When the span begins."),
    "seconds": described(COUNT, "The length of the span."),
    "queued": described(COUNT, "The most jobs that could be claimed."),
    "running": described(COUNT, "The most jobs that ran."),
    "oldest_seconds": described(SECONDS, "The longest time that a queued job had waited."),
    **dict.fromkeys(("enqueued", "succeeded", "failed", "canceled"), COUNT),
    **dict.fromkeys(
        ("wait_p50", "wait_p95", "wait_p99", "run_p50", "run_p95", "run_p99"),
        described(nullable(SECONDS), "A quantile in seconds; null if no job ended in SUCCESS or ERROR."),
    ),
}

SUMMARY_FIELDS: Final[dict[str, Shape]] = {
    "id": {"type": "integer"},
    "public_id": UUID,
    "task": TEXT,
    "queue": TEXT,
    "tenant": TEXT,
    "target": TEXT,
    "holds_target": FLAG,
    "unique_key": TEXT,
    "priority": {"type": "integer"},
    "status": STATUS,
    "waiting_for": {"enum": states.WaitingFor.values},
    "assigned": described(FLAG, "A worker has claimed the job but has not started it."),
    "cancel_requested": described({"enum": ["", "PAUSED", "CANCELED"]}, "The status that a running job gets if it stops as requested."),
    "attempts": record(runs=COUNT, failures=COUNT, crashes=COUNT, max_attempts=COUNT),
    "times": record(
        created_at=MOMENT,
        **dict.fromkeys(("run_at", "expires_at", "enqueued_at", "first_started_at", "started_at", "finished_at"), nullable(MOMENT)),
    ),
    "arguments": record(args=array(ANYTHING), kwargs=OBJECT),
}

SHAPES: Final[dict[str, Shape]] = {
    **OPERATOR_SHAPES,
    "Job": record(
        **SUMMARY_FIELDS,
        timeout_seconds=described(nullable(SECONDS), "The time limit of each run."),
        waited_seconds=described(nullable(SECONDS), "How long it was claimable before its last run, or until now."),
        waited_seconds_in_all=described(SECONDS, "How long all attempts waited, as far as it is known."),
        waits=described(array(ref("Wait")), "The waits of the attempts, the oldest first."),
        ran_seconds=described(nullable(SECONDS), "How long the last run took, or has taken until now."),
        ran_seconds_in_all=described(SECONDS, "How long the runs took that the report still contains."),
        progress=COUNT,
        phase=described(TEXT, "The phase of a pipeline that runs, or is next."),
        phases=array(ref("Phase")),
        outcome=record(message=TEXT, result=ANYTHING),
        runs=described(array(ref("Run")), "The runs that did not succeed, the oldest first."),
        events=described(array(ref("Event")), "The newest events, the oldest of these first."),
        older_events=described(FLAG, "Whether there are older events."),
        metadata=OBJECT,
        why_waiting=nullable(ref("Why")),
        reruns=described(
            record(original=nullable({"type": "integer"}), copies=array({"type": "integer"})),
            "The job of which this one is a copy, and the newest 20 copies of this one, as numbers.",
        ),
    ),
    "Jobs": record(
        jobs=described(array(record(**SUMMARY_FIELDS, message=TEXT)), "The newest job first."),
        more=described(FLAG, "Whether there are more than the limit."),
        after=described(nullable({"type": "integer"}), "The value of `after` for the next page; null if there is none."),
        scope=described(TEXT, "How far back jobs were searched; empty if all were."),
    ),
    "Wait": record(
        attempt=nullable(COUNT),
        waited_seconds=described(
            nullable(SECONDS),
            "From the creation of the job, or the end of the previous run, to the start of the attempt or to now; null if unknown.",
        ),
    ),
    "Phase": record(
        name=TEXT,
        position=COUNT,
        status={"enum": PHASE_STATES},
        progress=COUNT,
        message=TEXT,
        attempts=COUNT,
        started_at=nullable(MOMENT),
        finished_at=nullable(MOMENT),
    ),
    "Run": {
        **record(**ENTRY_FIELDS),
        "properties": {**ENTRY_FIELDS, "traceback": described(nullable(TEXT), "Only present for users who may open the admin.")},
        "description": "A run that did not succeed.",
    },
    "Event": record(id={"type": "integer"}, name=TEXT, at=MOMENT, attempt=COUNT, data=described(OBJECT, "The data of this kind of event.")),
    "StreamEvent": {
        "type": "object",
        "properties": {
            "id": described(nullable({"type": "integer"}), "The number of the event; null for an event that is not in the log."),
            "event": TEXT,
            "job_id": {"type": "integer"},
            "public_id": UUID,
            "at": MOMENT,
            "attempt": COUNT,
            "status": STATUS,
            "task": TEXT,
            "queue": TEXT,
            "tenant": TEXT,
            "target": TEXT,
            "data": OBJECT,
        },
        "required": ["id", "event", "at", "data"],
        "additionalProperties": False,
    },
    "Why": record(
        gate=described(TEXT, "A code for what the job waits for."),
        text=described(TEXT, "The reason as a sentence."),
        job_id=described(nullable({"type": "integer"}), "The job for which it waits."),
        job_public_id=nullable(UUID),
    ),
    "Answer": record(
        job={"type": "integer"},
        public_id=UUID,
        verdict={"enum": ["done", "requested"]},
        status=described(STATUS, "The job's status now."),
    ),
    "Targets": record(targets=array(ref("Line")), more=described(FLAG, "Whether there are more than the limit.")),
    "Line": record(
        tenant=TEXT,
        target=TEXT,
        holder_id=nullable({"type": "integer"}),
        holder_public_id=nullable(UUID),
        holder_status=TEXT,
        holder_task=TEXT,
        since=nullable(MOMENT),
        waiting=COUNT,
        waiting_is_capped=FLAG,
        oldest_waiting_at=nullable(MOMENT),
    ),
    "Errors": record(errors=array(ref("ErrorKind")), more=described(FLAG, "Whether there are more than the limit.")),
    "ErrorKind": record(
        key=described(TEXT, "The kind: the task, the exception, and the message without numbers and quoted values."),
        task=TEXT,
        exception=described(TEXT, "The dotted path of the class of the exception."),
        message=described(TEXT, "The message of the newest of the jobs."),
        number=described(COUNT, "The jobs that are in ERROR with this kind of error, counted up to a bound."),
        number_is_capped=described(FLAG, "Whether there may be more jobs than were counted."),
        in_last_hour=COUNT,
        in_last_day=COUNT,
        first_at=described(nullable(MOMENT), "When the first of the jobs ended."),
        last_at=described(nullable(MOMENT), "When the last of the jobs ended."),
        newest_id={"type": "integer"},
        newest_public_id=UUID,
    ),
    "WorkerDrain": record(
        id=TEXT,
        process=TEXT,
        changed=described(FLAG, "Whether the request changed anything."),
        drained=described(FLAG, "Whether the worker is to start no more jobs."),
    ),
    "Queues": record(queues=array(ref("QueueState")), more=described(FLAG, "Whether queues are left out.")),
    "QueueState": record(
        name=TEXT,
        paused=FLAG,
        max_running=nullable(COUNT),
        queued=COUNT,
        running=COUNT,
        oldest_queued_seconds=nullable(SECONDS),
        queued_is_capped=described(FLAG, "Whether more jobs are queued than were counted."),
        paused_until=described(nullable(MOMENT), "When the pause ends without a resume."),
    ),
    "Queue": record(
        name=TEXT,
        changed=described(FLAG, "Whether the request changed anything."),
        paused=FLAG,
        max_running=nullable(COUNT),
        paused_until=described(nullable(MOMENT), "When the pause ends without a resume."),
        warning=described(TEXT, "Why the name may be mistyped, if no task, schedule or worker has such a queue; else empty."),
    ),
    "Health": record(healthy=described(FLAG, "Whether no problem has a severity of `fail_on` or above."), problems=array(ref("Problem"))),
    "Problem": record(
        **dict.fromkeys(("code", "text", "fix", "subject"), TEXT), severity={"enum": ["error", "warning"]}, count=COUNT, more=FLAG
    ),
    "Status": record(
        queues=array(ref("QueueState")),
        workers=array(ref("Worker")),
        jobs=array(ref("JobCount")),
        more_queues=described(FLAG, "Whether queues are left out."),
    ),
    "JobCount": record(state=TEXT, number=COUNT, or_more=described(FLAG, "Whether there may be more."), scope=TEXT),
    "Loads": record(loads=array(record(name=TEXT, **FIGURES))),
    "Series": record(name=TEXT, period=TEXT, points=array(ref("Figures")), total=ref("Figures")),
    "Figures": record(**FIGURES),
    "Scaler": record(
        slots_wanted=described(COUNT, "The slots that all queues need."),
        queues=array(
            record(
                queue=TEXT,
                slots_wanted=COUNT,
                queued=described(COUNT, "The highest depth in the last minute."),
                arrivals_per_second=described(SECONDS, "Of the last five minutes."),
                run_seconds=described(nullable(SECONDS), "The mean duration of the runs in the last hour."),
                wait_p95=described(nullable(SECONDS), "In seconds, of the last five minutes."),
            )
        ),
    ),
    "Metrics": described(TEXT, "Metrics in the text format of Prometheus."),
    "Bulk": record(
        preview=record(
            verb=TEXT,
            number=described(COUNT, "The jobs that the search finds now; counted up to a limit."),
            more=described(FLAG, "Whether there are more than were counted."),
            **{key: {"type": "object", "additionalProperties": COUNT} for key in ("by_status", "by_queue", "by_task", "by_kind")},
            sample=array({"type": "integer"}),
            scope=described(TEXT, "How far back jobs were counted; empty if all were. The action considers all jobs."),
        ),
        action=nullable(ref("BulkAction")),
    ),
    "BulkAction": record(
        id={"type": "integer"},
        **dict.fromkeys(("verb", "query", "actor", "source"), TEXT),
        state={"enum": ["OPEN", "DONE", "STOPPED", "FAILED"]},
        stop=described(FLAG, "Whether a user has requested to stop it."),
        counted=described(COUNT, "The jobs that the search found when it was requested, up to a limit."),
        done=COUNT,
        refused=COUNT,
        refusals=described({"type": "object", "additionalProperties": COUNT}, "The number of refused jobs by reason."),
        message=described(TEXT, "Why it failed."),
        created_at=MOMENT,
        finished_at=nullable(MOMENT),
    ),
    "Error": record(
        error={
            "type": "object",
            "properties": {
                "code": TEXT,
                "message": TEXT,
                "job": {"type": "integer"},
                "public_id": UUID,
                "status": STATUS,
                "reason": TEXT,
                "permission": TEXT,
            },
            "required": ["code", "message"],
            "additionalProperties": False,
        }
    ),
}
