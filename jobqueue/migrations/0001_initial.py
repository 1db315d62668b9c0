import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

import jobqueue.models.fields
import jobqueue.models.webhook


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="BackgroundJobLease",
            fields=[
                ("job_name", models.CharField(help_text="The name of the duty.", max_length=200, primary_key=True, serialize=False)),
                (
                    "held_by_worker_id",
                    models.CharField(
                        blank=True, db_default="", default="", help_text="The worker process that leads it; empty: none.", max_length=64
                    ),
                ),
                ("lease_acquired_at", models.DateTimeField(blank=True, null=True)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                (
                    "metadata",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, output_field=models.JSONField()),
                        default=dict,
                        help_text="Its last run: duration, number of items, error.",
                    ),
                ),
            ],
            options={
                "verbose_name": "duty",
                "verbose_name_plural": "duties",
                "ordering": ("job_name",),
                "permissions": (("release_backgroundjoblease", "Can release the leaders of duties"),),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("job_name", ""), _negated=True), name="jobqueue_duty_name"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("heartbeat_at__isnull", True), ("held_by_worker_id", ""), ("lease_acquired_at__isnull", True)),
                            models.Q(
                                ("heartbeat_at__isnull", False),
                                ("lease_acquired_at__isnull", False),
                                models.Q(("held_by_worker_id", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="jobqueue_duty_lease",
                    ),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("lease_acquired_at", "heartbeat_at"), name="jobqueue_duty_times"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("queue", models.CharField(db_default="default", default="default", max_length=200)),
                ("task", models.CharField(help_text="Dotted path of the task.", max_length=450)),
                ("args", models.JSONField(blank=True, db_default=models.Value([], output_field=models.JSONField()), default=list)),
                ("kwargs", models.JSONField(blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict)),
                ("options", models.JSONField(blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict)),
                ("metadata", models.JSONField(blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict)),
                ("priority", models.SmallIntegerField(db_default=0, default=0, help_text="-100 to 100; higher runs first.")),
                (
                    "claim_rank",
                    models.GeneratedField(
                        db_persist=True,
                        expression=django.db.models.expressions.CombinedExpression(models.F("priority"), "*", models.Value(-1)),
                        help_text="Jobs are claimed in ascending order of this number.",
                        output_field=models.SmallIntegerField(),
                    ),
                ),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("PENDING", "Pending"),
                            ("QUEUED", "Queued"),
                            ("RUNNING", "Running"),
                            ("PAUSED", "Paused"),
                            ("ERROR", "Error"),
                            ("SUCCESS", "Success"),
                            ("CANCELED", "Canceled"),
                        ],
                        db_default="QUEUED",
                        default="QUEUED",
                    ),
                ),
                (
                    "waiting_for",
                    models.TextField(
                        blank=True,
                        choices=[("", "nothing"), ("time", "its time"), ("children", "its children"), ("target", "its target")],
                        db_default="",
                        default="",
                    ),
                ),
                ("run_at", models.DateTimeField(blank=True, help_text="The job is not queued before this time.", null=True)),
                ("expires_at", models.DateTimeField(blank=True, help_text="The job is canceled if it has not started by then.", null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "enqueued_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text="When it last became claimable."),
                ),
                ("first_started_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, help_text="When the current or last run started.", null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("stale_at", models.DateTimeField(blank=True, null=True)),
                ("target", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("holds_target", models.BooleanField(db_default=False, default=False)),
                ("unique_key", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("attempt", models.IntegerField(db_default=0, default=0, help_text="The number of runs that have started.")),
                ("max_attempts", models.IntegerField(db_default=1, default=1)),
                ("failures", models.IntegerField(db_default=0, default=0, help_text="Runs that failed; limited by max_attempts.")),
                ("crashes", models.IntegerField(db_default=0, default=0, help_text="Runs whose worker was lost; limited by MAX_CRASHES.")),
                (
                    "recovery",
                    models.CharField(
                        choices=[("requeue", "run again"), ("hold", "hold for an operator")],
                        db_default="requeue",
                        default="requeue",
                        max_length=16,
                    ),
                ),
                (
                    "lease_owner",
                    models.CharField(blank=True, db_default="", default="", help_text="The worker process that runs it.", max_length=64),
                ),
                (
                    "lease_token",
                    models.BigIntegerField(
                        db_default=jobqueue.models.fields.Token(),
                        help_text="The fence: starts at a random number and increases with each claim.",
                    ),
                ),
                ("lease_expires_at", models.DateTimeField(blank=True, null=True)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_requested", models.BooleanField(db_default=False, default=False)),
                ("cancel_outcome", models.CharField(blank=True, db_default="", default="", max_length=16)),
                ("message", models.TextField(blank=True, db_default="", default="")),
                (
                    "error_key",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The kind of the error with which the job last ended in ERROR.",
                        max_length=16,
                    ),
                ),
                ("progress", models.SmallIntegerField(db_default=0, default=0)),
                ("phase", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("result", models.JSONField(blank=True, null=True)),
                (
                    "history",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], output_field=models.JSONField()),
                        default=list,
                        help_text="One entry for each run that did not succeed.",
                    ),
                ),
                (
                    "worker_ids",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], output_field=models.JSONField()),
                        default=list,
                        help_text="The worker of each run.",
                    ),
                ),
                ("webhook_url", models.TextField(blank=True, db_default="", default="")),
                ("webhook_sent", models.BooleanField(db_default=False, default=False)),
                (
                    "backend",
                    models.TextField(
                        blank=True,
                        db_default="default",
                        default="default",
                        help_text="The alias in TASKS of the backend that stored the job.",
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "ordering": ("-id",),
                "permissions": (
                    ("cancel_job", "Can cancel jobs"),
                    ("pause_job", "Can pause jobs"),
                    ("resume_job", "Can resume jobs"),
                    ("run_now_job", "Can run scheduled jobs now"),
                    ("requeue_job", "Can run ended jobs again"),
                    ("view_job_log", "Can view what jobs have logged"),
                ),
                "indexes": [
                    models.Index(condition=models.Q(("status", "QUEUED")), fields=["tenant", "claim_rank", "id"], name="jobqueue_job_next"),
                    models.Index(
                        condition=models.Q(("status", "QUEUED")),
                        fields=["tenant", "queue", "claim_rank", "id"],
                        name="jobqueue_job_next_in_queue",
                    ),
                    models.Index(
                        condition=models.Q(("status", "PENDING"), ("waiting_for", "time")),
                        fields=["run_at", "id", "queue", "task"],
                        name="jobqueue_job_due",
                    ),
                    models.Index(
                        condition=models.Q(("status", "PENDING"), ("waiting_for", "children")), fields=["id"], name="jobqueue_job_parents"
                    ),
                    models.Index(
                        condition=models.Q(models.Q(("target", ""), _negated=True), ("status", "QUEUED")),
                        fields=["tenant", "target", "claim_rank", "id"],
                        name="jobqueue_job_line_queued",
                    ),
                    models.Index(
                        condition=models.Q(("status", "PENDING"), ("waiting_for", "target")),
                        fields=["tenant", "target", "claim_rank", "id"],
                        name="jobqueue_job_line_parked",
                    ),
                    models.Index(
                        condition=models.Q(
                            models.Q(("target", ""), _negated=True),
                            models.Q(("holds_target", True), ("status__in", ["PAUSED", "ERROR"]), _connector="OR"),
                        ),
                        fields=["tenant", "target"],
                        name="jobqueue_job_held",
                    ),
                    models.Index(condition=models.Q(("status", "RUNNING")), fields=["lease_owner"], name="jobqueue_job_running"),
                    models.Index(
                        condition=models.Q(("status__in", ["SUCCESS", "ERROR", "CANCELED"])),
                        fields=["finished_at", "id"],
                        name="jobqueue_job_ended",
                    ),
                    models.Index(
                        condition=models.Q(("status__in", ["PAUSED", "ERROR", "CANCELED"])),
                        fields=["status", "id", "queue", "task"],
                        name="jobqueue_job_attention",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("finished_at__isnull", True), ("first_started_at__isnull", True), ("expires_at__isnull", False)
                        ),
                        fields=["expires_at"],
                        name="jobqueue_job_expires",
                    ),
                    models.Index(condition=models.Q(("status", "ERROR")), fields=["finished_at"], name="jobqueue_job_failed"),
                    models.Index(
                        condition=models.Q(("status", "ERROR")), fields=["error_key", "finished_at", "id"], name="jobqueue_job_error_kind"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                jobqueue.models.fields.OneOf("status", "QUEUED", "RUNNING", "PAUSED", "ERROR", "SUCCESS", "CANCELED"),
                                ("waiting_for", ""),
                            ),
                            models.Q(
                                ("status", "PENDING"),
                                models.Q(
                                    jobqueue.models.fields.OneOf("waiting_for", "children", "target"),
                                    models.Q(("run_at__isnull", False), ("waiting_for", "time")),
                                    _connector="OR",
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="jobqueue_job_status",
                    ),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.AllOrNone(
                            models.Q(("status", "RUNNING"), _negated=True),
                            models.Q(("lease_owner", "")),
                            models.Q(("lease_expires_at__isnull", True)),
                            models.Q(("heartbeat_at__isnull", True)),
                        ),
                        name="jobqueue_job_lease",
                    ),
                    models.CheckConstraint(condition=models.Q(("progress__gte", 0), ("progress__lte", 100)), name="jobqueue_job_progress"),
                    models.CheckConstraint(
                        condition=models.Case(
                            models.When(target="", then=models.Q(("holds_target", False))),
                            models.When(status="RUNNING", then=models.Q(("holds_target", True))),
                            default=models.Q(
                                ("holds_target", False),
                                models.Q(jobqueue.models.fields.OneOf("status", "SUCCESS", "CANCELED"), _negated=True),
                                _connector="OR",
                            ),
                            output_field=models.BooleanField(),
                        ),
                        name="jobqueue_job_holds_target",
                    ),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable(
                            "run_at",
                            "expires_at",
                            "created_at",
                            "enqueued_at",
                            "first_started_at",
                            "started_at",
                            "stale_at",
                            "finished_at",
                            "lease_expires_at",
                            "heartbeat_at",
                        ),
                        name="jobqueue_job_times",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("holds_target", True)), fields=("tenant", "target"), name="jobqueue_job_one_holder"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            models.Q(("unique_key", ""), _negated=True), ("status__in", ["PENDING", "QUEUED", "RUNNING", "PAUSED"])
                        ),
                        fields=("tenant", "unique_key"),
                        name="jobqueue_job_unique_key",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.CharField(max_length=200, primary_key=True, serialize=False)),
                (
                    "paused",
                    models.BooleanField(
                        db_default=False, default=False, help_text="Workers start no job of a paused queue; running jobs continue."
                    ),
                ),
                (
                    "paused_until",
                    models.DateTimeField(blank=True, help_text="When the pause ends; empty: when the queue is resumed.", null=True),
                ),
                (
                    "max_running",
                    models.PositiveIntegerField(
                        blank=True, help_text="How many of its jobs may run at once, over all workers; empty: no limit, 0: none.", null=True
                    ),
                ),
                (
                    "webhook_url",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The URL to which events of its jobs are sent, unless a job has its own URL.",
                    ),
                ),
                (
                    "webhook_events",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], output_field=models.JSONField()),
                        default=list,
                        help_text="Which events are sent; empty: job.completed, job.failed and job.canceled.",
                    ),
                ),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "ordering": ("name",),
                "permissions": (
                    ("pause_queue", "Can pause queues"),
                    ("resume_queue", "Can resume queues"),
                    ("set_webhook_queue", "Can set webhooks of queues"),
                ),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="jobqueue_queue_name"),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("changed_at", "paused_until"), name="jobqueue_queue_times"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Sample",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=8)),
                ("name", models.CharField(max_length=500)),
                ("seconds", models.IntegerField()),
                ("slot", models.IntegerField()),
                ("begins", models.BigIntegerField(help_text="In seconds since 1970.")),
                ("queued", models.IntegerField(db_default=0, default=0, help_text="The most jobs that could be claimed.")),
                ("running", models.IntegerField(db_default=0, default=0, help_text="The most jobs that ran.")),
                (
                    "oldest_seconds",
                    models.FloatField(db_default=0.0, default=0.0, help_text="The longest time that a queued job had waited."),
                ),
                ("enqueued", models.BigIntegerField(db_default=0, default=0, help_text="Jobs that were created.")),
                ("succeeded", models.BigIntegerField(db_default=0, default=0)),
                ("failed", models.BigIntegerField(db_default=0, default=0, help_text="Jobs that ended in ERROR.")),
                ("canceled", models.BigIntegerField(db_default=0, default=0)),
                (
                    "wait_seconds",
                    models.FloatField(db_default=0.0, default=0.0, help_text="The sum of the waits before the last runs."),
                ),
                (
                    "run_seconds",
                    models.FloatField(db_default=0.0, default=0.0, help_text="The sum of the durations of the last runs."),
                ),
                ("waits", models.TextField(blank=True, db_default="", default="", help_text="The histogram of the waits.")),
                ("runs", models.TextField(blank=True, db_default="", default="", help_text="The histogram of the runs.")),
            ],
            options={
                "ordering": ("kind", "name", "seconds", "begins"),
                "indexes": [models.Index(fields=["seconds", "begins"], name="jobqueue_sample_age")],
                "constraints": [models.UniqueConstraint(fields=("kind", "name", "seconds", "slot"), name="jobqueue_sample_slot")],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                (
                    "source",
                    models.CharField(
                        choices=[("code", "code"), ("admin", "admin")], db_default="admin", default="admin", editable=False, max_length=16
                    ),
                ),
                ("task", models.CharField(help_text="Dotted path of a registered task.", max_length=450)),
                (
                    "args",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], output_field=models.JSONField()),
                        default=list,
                        help_text="Positional arguments: a JSON list.",
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, output_field=models.JSONField()),
                        default=dict,
                        help_text="Arguments by name: a JSON object.",
                    ),
                ),
                ("queue", models.CharField(blank=True, db_default="", default="", help_text="Empty: the task's own.", max_length=200)),
                ("priority", models.SmallIntegerField(blank=True, help_text="-100 to 100; empty: the task's own.", null=True)),
                ("tenant", models.CharField(blank=True, db_default="", default="", help_text="Empty: the task's own.", max_length=200)),
                ("target", models.CharField(blank=True, db_default="", default="", help_text="Empty: the task's own.", max_length=200)),
                (
                    "cron",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Minute, hour, day of the month, month, day of the week. Or an interval.",
                        max_length=200,
                    ),
                ),
                (
                    "interval_seconds",
                    models.PositiveIntegerField(blank=True, help_text="Counted from 1970 in UTC: 3600 is every full hour.", null=True),
                ),
                (
                    "time_zone",
                    models.CharField(
                        default=django.utils.timezone.get_default_timezone_name,
                        help_text="The time zone of the cron expression.",
                        max_length=100,
                    ),
                ),
                (
                    "missed",
                    models.CharField(
                        choices=[("skip", "skip them"), ("once", "run once, late"), ("all", "run all, up to a limit")],
                        db_default="once",
                        default="once",
                        help_text="What to do with times that were missed during a downtime.",
                        max_length=16,
                    ),
                ),
                (
                    "missed_limit",
                    models.IntegerField(
                        db_default=100, default=100, help_text="The maximum number of missed times that run, if all of them run."
                    ),
                ),
                ("enabled", models.BooleanField(db_default=True, default=True)),
                (
                    "retired_at",
                    models.DateTimeField(blank=True, help_text="When a worker found that the code no longer declares it.", null=True),
                ),
                ("next_at", models.DateTimeField(blank=True, help_text="The next nominal time.", null=True)),
                ("last_at", models.DateTimeField(blank=True, help_text="The last nominal time whose job was enqueued.", null=True)),
                ("last_job_id", models.BigIntegerField(blank=True, null=True)),
                ("last_error", models.TextField(blank=True, db_default="", default="", help_text="Why it could not be enqueued.")),
                ("retry_at", models.DateTimeField(blank=True, help_text="When the enqueue is retried after an error.", null=True)),
                (
                    "planned",
                    models.TextField(
                        blank=True, db_default="", default="", editable=False, help_text="The timing from which its next time was computed."
                    ),
                ),
                ("planned_at", models.DateTimeField(blank=True, editable=False, help_text="The next time as computed.", null=True)),
                (
                    "counted_from",
                    models.DateTimeField(
                        blank=True, editable=False, help_text="The time from which the next time was computed.", null=True
                    ),
                ),
                (
                    "service",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="The SERVICE whose workers enqueue it; empty: all workers without a SERVICE.",
                        max_length=50,
                    ),
                ),
                (
                    "declared_in",
                    models.CharField(
                        blank=True, db_default="", default="", editable=False, help_text="The module that declares it.", max_length=200
                    ),
                ),
                (
                    "conflict",
                    models.TextField(
                        blank=True, db_default="", default="", editable=False, help_text="The other service that declares it."
                    ),
                ),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "ordering": ("name",),
                "permissions": (
                    ("enable_schedule", "Can enable schedules"),
                    ("disable_schedule", "Can disable schedules"),
                    ("run_now_schedule", "Can run schedules now"),
                ),
                "indexes": [
                    models.Index(
                        condition=models.Q(("enabled", True), ("retired_at__isnull", True)),
                        fields=["next_at"],
                        name="jobqueue_schedule_due",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(models.Q(("name", ""), _negated=True), models.Q(("task", ""), _negated=True)),
                        name="jobqueue_schedule_name",
                    ),
                    models.CheckConstraint(condition=models.Q(("missed__in", ("skip", "once", "all"))), name="jobqueue_schedule_missed"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cron", ""), ("interval_seconds__gte", 1), ("interval_seconds__isnull", False)),
                            models.Q(("interval_seconds__isnull", True), models.Q(("cron", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="jobqueue_schedule_timing",
                    ),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable(
                            "retired_at", "next_at", "planned_at", "counted_from", "last_at", "retry_at", "changed_at"
                        ),
                        name="jobqueue_schedule_times",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("host", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("pid", models.IntegerField(db_default=0, default=0)),
                (
                    "queues",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], output_field=models.JSONField()),
                        default=list,
                        help_text="The queues it serves; empty: all.",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("RUNNING", "running"), ("DRAINING", "draining")], db_default="RUNNING", default="RUNNING", max_length=16
                    ),
                ),
                (
                    "drain_requested",
                    models.BooleanField(db_default=False, default=False, help_text="An operator has asked it to start no more jobs."),
                ),
                (
                    "slots",
                    models.IntegerField(db_default=0, default=0, help_text="Jobs that it can run at once now.", verbose_name="slots"),
                ),
                ("running", models.IntegerField(db_default=0, default=0, help_text="Jobs that it runs now.")),
                (
                    "stuck",
                    models.IntegerField(
                        db_default=0, default=0, help_text="Threads that did not react to an interrupt and were abandoned."
                    ),
                ),
                (
                    "services",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, output_field=models.JSONField()),
                        default=dict,
                        help_text="For each service: seconds since its last successful turn, seconds in its current turn, failures in a row.",
                    ),
                ),
                (
                    "scaling",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, output_field=models.JSONField()),
                        default=dict,
                        help_text="The last change of its slots: before, after, running jobs, claimable jobs, reason, age in seconds.",
                    ),
                ),
                ("memory_mb", models.IntegerField(db_default=0, default=0, help_text="The resident memory of the process, in MB.")),
                (
                    "stuck_runs",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], output_field=models.JSONField()),
                        default=list,
                        help_text="The runs that do not stop: job, task, and the line where the thread is.",
                    ),
                ),
                (
                    "failed_modules",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, output_field=models.JSONField()),
                        default=dict,
                        help_text="Modules of tasks and duties that it could not import, with the error of each.",
                    ),
                ),
                ("version", models.CharField(blank=True, db_default="", default="", max_length=32, verbose_name="version")),
                (
                    "release",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The release of the project (setting RELEASE).",
                        max_length=200,
                        verbose_name="release",
                    ),
                ),
                ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("heartbeat_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "ordering": ("-heartbeat_at",),
                "permissions": (("drain_worker", "Can drain workers"),),
                "constraints": [
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("started_at", "heartbeat_at"), name="jobqueue_worker_times"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="JobDependency",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("ended", models.BooleanField(db_default=False, default=False)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "child",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="parents",
                        to="jobqueue.job",
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="children",
                        to="jobqueue.job",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "job dependencies",
                "indexes": [
                    models.Index(condition=models.Q(("ended", False)), fields=["parent", "child"], name="jobqueue_dependency_open"),
                    models.Index(fields=["child"], name="jobqueue_dependency_child"),
                ],
                "constraints": [
                    models.CheckConstraint(condition=jobqueue.models.fields.Readable("created_at"), name="jobqueue_dependency_times"),
                    models.UniqueConstraint(fields=("parent", "child"), name="jobqueue_dependency_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="JobEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(help_text="For example job.started.", max_length=40)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("attempt", models.IntegerField(db_default=0, default=0)),
                ("tenant", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("target", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("data", models.JSONField(blank=True, help_text="The data of this kind of event: a JSON object, or nothing.", null=True)),
                (
                    "xid",
                    models.BigIntegerField(
                        db_default=jobqueue.models.fields.CurrentTransaction(),
                        editable=False,
                        help_text="The transaction that wrote it (PostgreSQL).",
                        null=True,
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="jobqueue.job",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
                "indexes": [
                    models.Index(fields=["job", "id"], name="jobqueue_event_of_job"),
                    models.Index(fields=["xid"], name="jobqueue_event_xid"),
                    models.Index(
                        condition=models.Q(("target", ""), _negated=True),
                        fields=["tenant", "target", "id"],
                        name="jobqueue_event_of_target",
                    ),
                ],
                "constraints": [models.CheckConstraint(condition=jobqueue.models.fields.Readable("at"), name="jobqueue_event_times")],
            },
        ),
        migrations.CreateModel(
            name="JobPhase",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.PositiveSmallIntegerField(help_text="Starts at 0.")),
                ("name", models.CharField(max_length=200)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("PENDING", "Pending"),
                            ("RUNNING", "Running"),
                            ("SUCCESS", "Success"),
                            ("ERROR", "Error"),
                            ("CANCELED", "Canceled"),
                        ],
                        db_default="PENDING",
                        default="PENDING",
                        max_length=16,
                    ),
                ),
                ("progress", models.SmallIntegerField(db_default=0, default=0, help_text="0 to 100.")),
                ("message", models.TextField(blank=True, db_default="", default="")),
                ("result", models.JSONField(blank=True, null=True)),
                (
                    "checkpoint",
                    models.JSONField(blank=True, help_text="The checkpoint at which the next run of the phase continues.", null=True),
                ),
                ("attempts", models.IntegerField(db_default=0, default=0, help_text="The number of its runs.")),
                ("started_at", models.DateTimeField(blank=True, help_text="When its last run started.", null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="phases",
                        to="jobqueue.job",
                    ),
                ),
            ],
            options={
                "ordering": ("job", "position"),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["PENDING", "RUNNING", "SUCCESS", "ERROR", "CANCELED"])),
                        name="jobqueue_phase_status",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("progress__gte", 0), ("progress__lte", 100)), name="jobqueue_phase_progress"
                    ),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("started_at", "finished_at"), name="jobqueue_phase_times"
                    ),
                    models.UniqueConstraint(fields=("job", "name"), name="jobqueue_phase_name"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ScheduleTick",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("nominal_at", models.DateTimeField()),
                ("job_id", models.BigIntegerField(null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "schedule",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="ticks", to="jobqueue.schedule"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["nominal_at"], name="jobqueue_tick_age")],
                "constraints": [
                    models.UniqueConstraint(fields=("schedule", "nominal_at"), name="jobqueue_tick_once"),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("nominal_at", "created_at"), name="jobqueue_tick_times"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditRecord",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="time")),
                ("actor", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("name", models.CharField(blank=True, db_default="", default="", max_length=150)),
                (
                    "source",
                    models.CharField(blank=True, db_default="", default="", help_text="admin, rest, command or bulk.", max_length=16),
                ),
                ("verb", models.CharField(blank=True, db_default="", default="", max_length=60)),
                ("object", models.CharField(blank=True, db_default="", default="", help_text="For example job 7.", max_length=200)),
                (
                    "model",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The name of the model, for a link; empty if the object has no page.",
                        max_length=40,
                    ),
                ),
                (
                    "key",
                    models.CharField(blank=True, db_default="", default="", help_text="The primary key of the object.", max_length=200),
                ),
                (
                    "job_id",
                    models.BigIntegerField(blank=True, help_text="The job that was changed, or to which the object belongs.", null=True),
                ),
                (
                    "verdict",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="done, or requested: a running job was asked to stop.",
                        max_length=16,
                    ),
                ),
                (
                    "address",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The address of the request, or the machine of the command.",
                        max_length=200,
                    ),
                ),
                ("text", models.CharField(blank=True, db_default="", default="", max_length=200)),
            ],
            options={
                "verbose_name": "activity",
                "verbose_name_plural": "activities",
                "ordering": ("-id",),
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["name", "id"], name="jobqueue_audit_of_user"),
                    models.Index(fields=["verb", "id"], name="jobqueue_audit_of_verb"),
                    models.Index(condition=models.Q(("job_id__isnull", False)), fields=["job_id", "id"], name="jobqueue_audit_of_job"),
                ],
                "constraints": [models.CheckConstraint(condition=jobqueue.models.fields.Readable("at"), name="jobqueue_audit_times")],
            },
        ),
        migrations.CreateModel(
            name="LeftWorker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("worker", models.UUIDField(editable=False)),
                ("host", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("pid", models.IntegerField(db_default=0, default=0)),
                ("version", models.CharField(blank=True, db_default="", default="", max_length=32)),
                ("release", models.CharField(blank=True, db_default="", default="", max_length=200)),
                (
                    "how",
                    models.CharField(
                        choices=[
                            ("stopped", "stopped"),
                            ("drained", "drained, then stopped"),
                            ("failed", "failed"),
                            ("killed", "killed"),
                            ("silent", "silent for a day"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "reason",
                    models.CharField(blank=True, db_default="", default="", help_text="Why it ended, if it knew.", max_length=200),
                ),
                ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("left_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "ordering": ("-id",),
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("started_at", "left_at"), name="jobqueue_left_worker_times"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("message_id", models.UUIDField(editable=False)),
                ("event", models.CharField(help_text="For example job.completed.", max_length=40)),
                ("queue", models.CharField(max_length=200)),
                ("url", models.TextField()),
                (
                    "facts",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, output_field=models.JSONField()),
                        default=dict,
                        help_text="The facts about the job at the time of the event, from which the message is built.",
                    ),
                ),
                (
                    "body",
                    models.TextField(
                        blank=True, db_default="", default="", help_text="The message as it is sent; empty before the first attempt."
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[("PENDING", "Pending"), ("DELIVERED", "Delivered"), ("FAILED", "Failed")],
                        db_default="PENDING",
                        default="PENDING",
                        max_length=16,
                    ),
                ),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("next_attempt_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("response_status", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("error", models.TextField(blank=True, db_default="", default="", help_text="The error of the last attempt.")),
                (
                    "history",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], output_field=models.JSONField()),
                        default=list,
                        help_text="The newest attempts: number, time, URL, status, duration, error, first bytes of the response.",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=jobqueue.models.webhook.keep_pending,
                        related_name="deliveries",
                        to="jobqueue.job",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "ordering": ("-id",),
                "permissions": (
                    ("redeliver_webhookdelivery", "Can redeliver webhooks"),
                    ("give_up_webhookdelivery", "Can give up webhooks"),
                ),
                "indexes": [
                    models.Index(condition=models.Q(("status", "PENDING")), fields=["next_attempt_at"], name="jobqueue_delivery_due"),
                    models.Index(fields=["job"], name="jobqueue_delivery_of_job"),
                    models.Index(condition=models.Q(("status", "FAILED")), fields=["finished_at"], name="jobqueue_delivery_failed"),
                    models.Index(
                        condition=models.Q(("attempts__gt", 0), ("status", "PENDING"), models.Q(("error", ""), _negated=True)),
                        fields=["id"],
                        name="jobqueue_delivery_retried",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["PENDING", "DELIVERED", "FAILED"])), name="jobqueue_delivery_status"
                    ),
                    models.CheckConstraint(condition=models.Q(("url", ""), _negated=True), name="jobqueue_delivery_url"),
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("created_at", "next_attempt_at", "finished_at"),
                        name="jobqueue_delivery_times",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BulkAction",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "user",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The primary key of the user; empty: an operator of the command line.",
                        max_length=200,
                    ),
                ),
                (
                    "actor",
                    models.CharField(
                        blank=True, db_default="", default="", help_text="The name of the user or operator, for the audit.", max_length=300
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        blank=True, db_default="", default="", help_text="Where it was requested: admin, rest or command.", max_length=16
                    ),
                ),
                ("verb", models.CharField(max_length=16)),
                ("query", models.TextField(help_text="The search that selects the jobs.")),
                ("upto_id", models.BigIntegerField(help_text="The newest job when it was requested; later jobs are not changed.")),
                ("cursor", models.BigIntegerField(db_default=0, default=0)),
                (
                    "counted",
                    models.IntegerField(
                        db_default=0, default=0, help_text="The jobs that the search found when it was requested, up to a limit."
                    ),
                ),
                ("done", models.IntegerField(db_default=0, default=0, help_text="The jobs that were changed, or were requested to stop.")),
                ("refused", models.IntegerField(db_default=0, default=0)),
                (
                    "refusals",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, output_field=models.JSONField()),
                        default=dict,
                        help_text="The number of refused jobs by reason.",
                    ),
                ),
                ("stop", models.BooleanField(db_default=False, default=False)),
                (
                    "state",
                    models.CharField(
                        choices=[("OPEN", "Open"), ("DONE", "Done"), ("STOPPED", "Stopped"), ("FAILED", "Failed")],
                        db_default="OPEN",
                        default="OPEN",
                        max_length=16,
                    ),
                ),
                ("message", models.TextField(blank=True, db_default="", default="", help_text="Why it failed.")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ("-id",),
                "default_permissions": (),
                "indexes": [models.Index(condition=models.Q(("state", "OPEN")), fields=["id"], name="jobqueue_bulk_open")],
                "constraints": [
                    models.CheckConstraint(
                        condition=jobqueue.models.fields.Readable("created_at", "finished_at"), name="jobqueue_bulk_times"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="JobRerun",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "copy",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="originals",
                        to="jobqueue.job",
                    ),
                ),
                (
                    "original",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="reruns",
                        to="jobqueue.job",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
                "default_permissions": (),
                "indexes": [models.Index(fields=["original", "id"], name="jobqueue_rerun_original")],
                "constraints": [models.UniqueConstraint(fields=("copy",), name="jobqueue_rerun_copy")],
            },
        ),
        migrations.CreateModel(
            name="JobLog",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt", models.IntegerField(db_default=0, default=0)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text="The time of the first line.")),
                ("first", models.IntegerField(db_default=0, default=0, help_text="The number of the first line in its run.")),
                ("last", models.IntegerField(db_default=0, default=0, help_text="The number of the last line in its run.")),
                (
                    "level",
                    models.SmallIntegerField(
                        db_default=0, default=0, help_text="The highest level of the lines, for example 30 for WARNING."
                    ),
                ),
                (
                    "lines",
                    models.TextField(
                        help_text="A JSON list; for each line the milliseconds since `at`, the level, the logger, and the text."
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="log",
                        to="jobqueue.job",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
                "default_permissions": (),
                "indexes": [models.Index(fields=["job", "id"], name="jobqueue_log_of_job")],
                "constraints": [models.CheckConstraint(condition=jobqueue.models.fields.Readable("at"), name="jobqueue_log_times")],
            },
        ),
    ]
