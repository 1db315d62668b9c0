"""The shapes of the responses about webhooks, workers, logs, schedules and the activity, as JSON Schema."""

from __future__ import annotations

from typing import Final

from jobqueue.api.shape_parts import COUNT, FLAG, MOMENT, SECONDS, TEXT, UUID, Shape, array, described, nullable, record, ref
from jobqueue.models import LeftWorker

DELIVERY_FIELDS: Final[dict[str, Shape]] = {
    "delivery": {"type": "integer"},
    "message_id": {"type": "string", "format": "uuid"},
    "status": {"enum": ["PENDING", "DELIVERED", "FAILED"]},
    "event": TEXT,
    "job": {"type": "integer"},
    "public_id": UUID,
    "queue": TEXT,
    "url": described(TEXT, "The origin and a hash of the URL."),
    "attempts": COUNT,
    "created_at": MOMENT,
    "next_attempt_at": nullable(MOMENT),
    "finished_at": nullable(MOMENT),
    "response_status": nullable(COUNT),
    "error": described(TEXT, "The error of the last attempt."),
}

WORKER_FIELDS: Final[dict[str, Shape]] = {
    "id": TEXT,
    "process": described(TEXT, "The host and the process id."),
    "queues": described(array(TEXT), "The queues that it serves; empty: all."),
    "state": {"enum": ["RUNNING", "DRAINED", "DRAINING"]},
    "slots": COUNT,
    "running": described(COUNT, "The jobs that it holds now, by their leases; the other numbers are those of its last heartbeat."),
    "stuck_threads": COUNT,
    "problems": array(TEXT),
    "release": described(TEXT, "The release of the project (setting RELEASE)."),
    "memory_mb": COUNT,
    "heard_seconds": described(SECONDS, "How long ago its last heartbeat was."),
}

SCHEDULE_FIELDS: Final[dict[str, Shape]] = {
    "name": TEXT,
    "source": {"enum": ["code", "admin"]},
    "task": TEXT,
    "when": TEXT,
    "time_zone": TEXT,
    "state": {"enum": ["enabled", "disabled", "retired"]},
    "next_at": nullable(MOMENT),
    "last_at": nullable(MOMENT),
    "last_job_id": nullable({"type": "integer"}),
    "last_error": TEXT,
}

RERUN_BODY: Final[Shape] = {
    "type": "object",
    "properties": {"args": {"type": "array", "items": {}}, "kwargs": {"type": "object"}},
    "additionalProperties": False,
}

OPERATOR_SHAPES: Final[dict[str, Shape]] = {
    "Worker": record(**WORKER_FIELDS),
    "Workers": record(workers=array(ref("Worker")), left=described(array(ref("LeftWorker")), "The last 50 that left.")),
    "WorkerDetail": record(
        **WORKER_FIELDS,
        version=TEXT,
        started_at=MOMENT,
        heartbeat_at=MOMENT,
        duties=described(array(TEXT), "The duties that it leads."),
        jobs=described(array(ref("RunningJob")), "The first 50 of its running jobs that you may see."),
        stuck=described(array(ref("RunningJob")), "The jobs of runs that do not stop; the jobs can have ended."),
    ),
    "RunningJob": record(
        job={"type": "integer"},
        public_id=UUID,
        task=TEXT,
        queue=TEXT,
        attempt=COUNT,
        started_at=nullable(MOMENT),
        line=described(TEXT, "Where the thread of a run that does not stop is; empty for other runs."),
    ),
    "LeftWorker": record(
        id=TEXT,
        process=TEXT,
        how={"enum": [*LeftWorker.How.values]},
        reason=described(TEXT, "Why it ended, if it knew."),
        release=TEXT,
        started_at=MOMENT,
        left_at=MOMENT,
    ),
    "Schedules": record(schedules=array(record(**SCHEDULE_FIELDS))),
    "ScheduleDetail": record(**SCHEDULE_FIELDS, history=described(array(ref("HistoryEntry")), "The newest times first.")),
    "HistoryEntry": record(
        nominal_at=described(MOMENT, "The nominal time; of missed times, the first."),
        job_id=described(nullable({"type": "integer"}), "The job; null for missed times, and if you may not see it."),
        status=described(TEXT, "The status of the job; empty if it was deleted."),
        late_seconds=described(SECONDS, "How long after the nominal time the job was enqueued."),
        missed=described(COUNT, "How many times in a row got no job; 0 for a time that got one."),
    ),
    "Activity": record(
        activity=array(
            record(
                id={"type": "integer"},
                actor=described(TEXT, "The user, or the system user who ran a command, as in the log of the audit."),
                name=TEXT,
                source={"enum": ["admin", "rest", "command", "bulk"]},
                verb=TEXT,
                object=described(TEXT, "For example `job 7`; it can be deleted since."),
                job_id=nullable({"type": "integer"}),
                verdict={"enum": ["done", "requested"]},
                address=TEXT,
                text=TEXT,
                at=MOMENT,
            )
        ),
        more=described(FLAG, "Whether there are more than the limit."),
        after=described(nullable({"type": "integer"}), "The value of `after` for the next page; null if there is none."),
    ),
    "Deliveries": record(
        deliveries=described(array(record(**DELIVERY_FIELDS)), "The newest first."),
        more=described(FLAG, "Whether there are more than the limit."),
        after=described(nullable({"type": "integer"}), "The value of `after` for the next page; null if there is none."),
    ),
    "DeliveryDetail": record(**DELIVERY_FIELDS, history=described(array(ref("Attempt")), "The newest attempts, the oldest first.")),
    "Attempt": record(
        attempt=nullable(COUNT),
        at=nullable(TEXT),
        url=described(nullable(TEXT), "The origin and a hash of the URL."),
        status=nullable(COUNT),
        milliseconds=nullable(COUNT),
        error=nullable(TEXT),
        excerpt=described(nullable(TEXT), "The first 2 kB of the response, with masked secrets."),
    ),
    "DeliveryAnswer": record(delivery={"type": "integer"}, done=FLAG),
    "WebhookTest": record(
        queue=TEXT,
        url=described(TEXT, "The origin and a hash of the URL."),
        delivered=described(FLAG, "Whether the receiver returned a 2xx status."),
        signed=FLAG,
        status=nullable(COUNT),
        milliseconds=nullable(COUNT),
        error=TEXT,
        excerpt=described(TEXT, "The first 2 kB of the response, with masked secrets."),
    ),
    "Rerun": record(
        job=described({"type": "integer"}, "The number of the job that has ended."),
        public_id=UUID,
        copy=described({"type": "integer"}, "The number of the new job."),
        copy_public_id=UUID,
    ),
    "Log": record(
        lines=array(ref("LogLine")),
        more=described(FLAG, "Whether there are more lines now."),
        after=described(nullable({"type": "integer"}), "The number to continue after, now or when the job has logged more."),
    ),
    "LogLine": record(
        id={"type": "integer"},
        attempt=described(COUNT, "The number of the run."),
        number=described(COUNT, "The number of the line in its run, from 1 on: a run's older lines are not kept if it logs very much."),
        at=MOMENT,
        level=TEXT,
        logger=TEXT,
        text=TEXT,
    ),
}
