"""Rows of the tests, made by factory-boy directly in the database, without the verbs."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import factory
from factory.django import DjangoModelFactory

from jobqueue import clock
from jobqueue.models import Job, Schedule, WebhookDelivery, Worker


def ahead(**delta: float) -> Any:
    """Declare a time so far ahead of now (behind it where negative)."""

    def moment(_: Any) -> datetime:
        return clock.now() + timedelta(**delta)

    return factory.LazyAttribute(moment)


class WithTraits(DjangoModelFactory):
    """Set each trait to off by default.

    otherwise factory-boy searches it for each field, and builds a long text for an error that it then discards: most of
    the time that a row takes.
    """

    class Meta:
        abstract = True

    @classmethod
    def _generate(cls, strategy: str, params: dict[str, Any]) -> Any:
        traits = {name: trait for name, trait in cls._meta.parameters.items() if isinstance(trait, factory.Trait)}
        turned_on_by_others = {name for trait in traits.values() for name in trait.overrides}
        return super()._generate(strategy, {**dict.fromkeys(traits.keys() - turned_on_by_others, False), **params})


class JobFactory(WithTraits):
    """Make a QUEUED job; a trait puts it into another state, whole as the product would leave it."""

    class Meta:
        model = Job

    task = "tests.tasks.add"
    args = factory.LazyFunction(lambda: [1])
    lease_token = 0  # of a row that the table itself makes it begins at a random number

    class Params:
        queued = factory.Trait(status="QUEUED")
        scheduled = factory.Trait(status="PENDING", waiting_for="time", run_at=ahead(hours=1))
        due = factory.Trait(status="PENDING", waiting_for="time", run_at=ahead(seconds=-1))
        waiting_for_children = factory.Trait(status="PENDING", waiting_for="children", attempt=1, worker_ids=["worker-0"])
        waiting_for_target = factory.Trait(status="PENDING", waiting_for="target", target="customer:7")
        waiting_for_retry = factory.Trait(
            status="PENDING", waiting_for="time", run_at=ahead(seconds=5), attempt=1, failures=1, lease_token=1, worker_ids=["worker-0"]
        )
        running = factory.Trait(
            status="RUNNING",
            attempt=1,
            lease_owner="worker-1",
            lease_token=1,
            lease_expires_at=ahead(seconds=30),
            heartbeat_at=ahead(),
            holds_target=factory.LazyAttribute(lambda job: bool(job.target)),
        )
        expired = factory.Trait(
            running=True, lease_expires_at=ahead(seconds=-1), heartbeat_at=ahead(seconds=-31), started_at=ahead(seconds=-40)
        )
        pause_requested = factory.Trait(running=True, cancel_requested=True, cancel_outcome="PAUSED")
        cancel_requested_ = factory.Trait(running=True, cancel_requested=True, cancel_outcome="CANCELED")
        paused = factory.Trait(status="PAUSED", message="Job was interrupted by user")
        error = factory.Trait(
            status="ERROR", attempt=1, failures=1, lease_token=1, worker_ids=["worker-0"], finished_at=ahead(), message="ValueError: no"
        )
        success = factory.Trait(status="SUCCESS", attempt=1, lease_token=1, worker_ids=["worker-0"], finished_at=ahead(), progress=100)
        canceled = factory.Trait(status="CANCELED", finished_at=ahead())


class WorkerFactory(DjangoModelFactory):
    """Make the row of a worker process with a recent heartbeat."""

    class Meta:
        model = Worker

    id = factory.Faker("uuid4", cast_to=None)
    host = "localhost"
    pid = factory.Sequence(lambda number: 1000 + number)
    slots = 8
    version = "0.1.0"
    heartbeat_at = ahead()


class ScheduleFactory(DjangoModelFactory):
    """Make a schedule of each minute that is enabled."""

    class Meta:
        model = Schedule

    name = factory.Sequence(lambda number: f"schedule-{number}")
    task = "tests.tasks.add"
    args = factory.LazyFunction(lambda: [1])
    cron = "* * * * *"
    time_zone = "UTC"


class DeliveryFactory(WithTraits):
    """Make a message that is due, of a job that has succeeded."""

    class Meta:
        model = WebhookDelivery

    message_id = factory.LazyFunction(uuid.uuid4)
    job = factory.SubFactory(JobFactory, success=True)
    event = "job.completed"
    queue = "default"
    url = "http://127.0.0.1:9/hook"
    facts = factory.LazyAttribute(
        lambda row: {"job_id": row.job.pk, "task": row.job.task, "status": row.job.status, "at": "2026-01-02T03:04:05+00:00"}
    )
    next_attempt_at = ahead(seconds=-1)

    class Params:
        delivered = factory.Trait(
            status="DELIVERED", attempts=1, finished_at=ahead(), response_status=204, body='{"type": "job.completed"}'
        )
        failed = factory.Trait(
            status="FAILED", attempts=11, finished_at=ahead(), response_status=500, error="the receiver returned status 500", body="{}"
        )
