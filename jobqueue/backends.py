"""The backend of django.tasks that stores tasks as jobs in the project's database.

There is one backend per thread, so it keeps no state. It supports every capability that django.tasks knows.
Declaring a task creates its backend, so this module imports models only inside of the functions that create and
read jobs: an `AppConfig` module may import tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import transaction

from jobqueue import compat, conf, public_ids, signals
from jobqueue.core import moments, payload, repeats, time_limits
from jobqueue.core.service import in_service_thread
from jobqueue.declared import functions
from jobqueue.exceptions import Interrupted, InvalidOption, TimeLimitExceeded, is_for_the_process
from jobqueue.tasks import options, results
from jobqueue.tasks.placement import check_place
from jobqueue.tasks.results import JobResult, Results
from jobqueue.tasks.task import JobTask, detached

if TYPE_CHECKING:
    from jobqueue.lifecycle.enqueue import Enqueued, JobSpec

BaseTaskBackend: Any = compat.module("backends.base").BaseTaskBackend


class JobTaskMixin:
    """A mixin for backends that build and check tasks of jobqueue; the backends for tests use it, too."""

    task_class = JobTask

    def validate_task(self, task: Any) -> None:
        """Check a task; a timedelta in `run_after` counts from the enqueue."""
        if not isinstance(task, JobTask):  # a JobTask has checked these
            functions.check_function(task.func)
            options.check_priority(task.priority)
        moments.check_run_after(task.run_after)
        if isinstance(task.run_after, timedelta):
            task = detached(task, run_after=None)
        super().validate_task(task)  # type: ignore[misc]


class DatabaseBackend(JobTaskMixin, BaseTaskBackend):  # type: ignore[misc]
    """The backend that stores tasks as jobs in the database; ``manage.py runworkers`` runs them."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    keeps_deltas = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobResult:
        """Create a job in the caller's transaction; if an unfinished job has its unique key, return the result of that job.

        Raise a `TypeError` or `ValueError` (both are also a `JobQueueError`) for arguments that JSON cannot store.
        """
        self.validate_task(task)
        conf.public_id_keys()  # without a key, raise before the job exists
        args_text, kwargs_text = payload.dumps_arguments(args, kwargs)
        options = _own(task, args, kwargs) if isinstance(task, JobTask) else {}
        enqueued = _enqueuing().enqueue(self._spec(task, args=args_text, kwargs=kwargs_text, **options))
        result = self._result(enqueued, task, args, kwargs)
        if enqueued.created and signals.has_effect(signals.task_enqueued):
            self._announce_enqueued(result)
        return result

    def enqueue_many(self, task: Any, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> Results:
        """Create a job for each ``(args, kwargs)``, all or none; each result is built when it is read."""
        from jobqueue.lifecycle.enqueue import Call, enqueue_many

        self.validate_task(task)
        conf.public_id_keys()
        pairs = [(tuple(args), kwargs) for args, kwargs in calls]
        has_own = isinstance(task, JobTask) and (task.unique_key or task.target)
        texts = [Call(*payload.dumps_arguments(args, kwargs), **(_own(task, args, kwargs) if has_own else {})) for args, kwargs in pairs]
        enqueued = enqueue_many(self._spec(task), texts)
        results = Results(len(enqueued), lambda index: self._result(enqueued[index], task, *pairs[index]))
        if signals.has_effect(signals.task_enqueued):
            for result in results:
                if result.created:
                    self._announce_enqueued(result)
        return results

    def _announce_enqueued(self, result: JobResult) -> None:
        if not in_service_thread():
            _send_enqueued(type(self), result)
            return
        # A receiver can hang, so the announcer calls it. It would not find a job that is not committed yet.
        from jobqueue.models import Job

        send = partial(signals.deliver, lambda event, _: _send_enqueued(type(self), event), [result])
        transaction.on_commit(send, using=Job.objects.database.alias)

    def get_result(self, result_id: str) -> JobResult:
        """Return a job as a result, by its public id; raise `TaskResultDoesNotExist` if no job of this backend has that id.

        A number is rejected, because it can be guessed.
        """
        from jobqueue.models import Job

        job_id = public_ids.job_id_of(str(result_id))
        job = None if job_id is None else Job.objects.current.filter(pk=job_id, backend=self.alias).first()
        if job is None:
            raise compat.TaskResultDoesNotExist(result_id)
        return results.of_job(job)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Reject OPTIONS: options of a task belong on the task, settings of the worker into JOBQUEUE."""
        yield from super().check(**kwargs)
        for name in self.options:
            yield checks.Error(
                f"TASKS[{self.alias!r}]['OPTIONS'] has {name!r}, which {type(self).__name__} does not know.",
                hint="Put options of a task on @task(...), settings of the worker into JOBQUEUE.",
                id="jobqueue.E101",
            )

    def _spec(self, task: Any, **texts: Any) -> JobSpec:
        spec: type[JobSpec] = _enqueuing().JobSpec
        if not isinstance(task, JobTask):
            recovery = conf.current().default_recovery
            return spec(
                task.module_path,
                queue=task.queue_name,
                priority=task.priority,
                run_after=task.run_after,
                recovery=recovery,
                options=_options(None),
                backend=self.alias,
                **texts,
            )
        if task.transactional:
            check_place(task)
        return spec(
            task.module_path,
            queue=task.queue_name,
            priority=task.priority,
            run_after=task.run_after,
            max_attempts=task.max_attempts,
            recovery=task.recovery or conf.current().default_recovery,
            tenant=task.tenant or "",
            webhook_url=task.webhook_url or "",
            backend=self.alias,
            options=_options(task.timeout),
            expires=_expires(task.expires),
            phases=tuple(phase.name for phase in task.phases),
            metadata=payload.dumps_metadata(task.metadata) if task.metadata else "{}",
            **texts,
        )

    def _result(self, enqueued: Enqueued, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobResult:
        if enqueued.created:
            return results.fresh(task, enqueued.job_id, enqueued.created_at, args, kwargs, self.alias)
        from jobqueue.models import Job

        job = Job.objects.current.get(pk=enqueued.job_id)
        return results.of_job(job, created=False)


@cache  # an import inside of a function takes longer than all else that it does
def _enqueuing() -> Any:
    from jobqueue.lifecycle import enqueue

    return enqueue


def _send_enqueued(sender: type, result: JobResult) -> None:
    try:
        signals.task_enqueued.send_robust(sender, task_result=result)
    except (Interrupted, TimeLimitExceeded):  # raised in the thread of a task that must stop
        raise
    except BaseException as error:  # `send_robust` does not catch SystemExit and the like; the job exists in any case
        if is_for_the_process(error):
            raise
        repeats.log(logging.ERROR, "Job %s: a receiver of task_enqueued failed.", result.job_id, exc_info=True)


def _expires(expires: float | timedelta | datetime | None) -> timedelta | datetime | None:
    return expires if expires is None or isinstance(expires, datetime) else options.expires_in(expires)


def _options(timeout: float | timedelta | None) -> str:
    """Return the job's options as JSON text, with the project's defaults for those that the task does not set."""
    seconds = conf.current().default_timeout_seconds if timeout is None else time_limits.in_seconds(timeout)
    return time_limits.options_text(seconds)


def _own(task: JobTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return the unique key and the target, which can depend on the arguments."""
    given = {"unique_key": task.unique_key, "target": task.target}
    return {name: options.resolved(name, value, tuple(args), kwargs) for name, value in given.items() if value}


def backend_of(task: Any) -> Any:
    """Return the backend of a task; raise `InvalidOption` if it is neither jobqueue's nor one of `jobqueue.testing`."""
    backend = task.get_backend()
    if not isinstance(backend, JobTaskMixin):
        raise InvalidOption(f"Backend {task.backend!r} is a {type(backend).__name__}; this needs jobqueue.backends.DatabaseBackend.")
    return backend
