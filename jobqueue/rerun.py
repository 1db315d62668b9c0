"""Run an ended job again: enqueue a copy of it, with the same or with other arguments, and link the two.

The copy has the options of the original: its queue, priority, target, tenant, unique key, attempts, time limit, webhook and metadata. If
the arguments are changed, a target or a unique key that the task computes from them is computed again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from jobqueue import compat
from jobqueue.access.hidden_values import names_other_place, places_of_masks, restored
from jobqueue.access.hiding import arguments_of, declared
from jobqueue.backends import backend_of
from jobqueue.core import payload, time_limits
from jobqueue.core.masking import MASK
from jobqueue.core.sentences import message_of, sentence
from jobqueue.core.states import ENDED
from jobqueue.exceptions import CannotRunAgain, InvalidArguments, JobDoesNotExist, JobQueueError
from jobqueue.models import Job, JobRerun
from jobqueue.schedules.declarations import check_call
from jobqueue.tasks.task import JobTask, placeholder

MAX_NAMED = 50
KINDS = {"args": (list, "a list, such as [7]"), "kwargs": (dict, 'an object, such as {"customer_id": 7}')}


def run_again(job_id: int, *, args: Any = None, kwargs: Any = None) -> int:
    """Enqueue a copy of a job that has ended, and return its number. Arguments that are None are those of the original.

    Raise `JobDoesNotExist`, or `CannotRunAgain` with all problems. A masked value in the arguments means the hidden one of the
    original, if no change can send that to another receiver.
    """
    with Job.objects.database.atomic():
        job = Job.objects.current.filter(pk=job_id).first()
        if job is None:
            raise JobDoesNotExist(f"There is no job {job_id}.")
        given = {name: value for name, value in (("args", args), ("kwargs", kwargs)) if value is not None}
        values, problems = _arguments(job, given)
        if job.status not in ENDED:
            text = sentence("Job %(job)s is %(status)s: only a job that has ended can run again.", job=str(job_id), status=job.status)
            problems.insert(0, text)
        if problems:
            raise CannotRunAgain(problems)
        try:
            result = _enqueue(job, values, is_changed=values != {"args": job.args, "kwargs": job.kwargs})
        except (JobQueueError, compat.InvalidTask, compat.InvalidTaskBackend) as error:
            raise CannotRunAgain([message_of(error)]) from error
        if not result.created:
            ids = {"rival": str(result.job_id), "job": str(job_id)}
            raise CannotRunAgain([sentence("Job %(rival)s has the unique key of job %(job)s, and has not ended.", **ids)])
        JobRerun.objects.using(Job.objects.database.alias).create(original_id=job_id, copy_id=result.job_id)
    return int(result.job_id)


def _arguments(job: Job, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments of the copy, and what is wrong with them."""
    stored = {"args": job.args, "kwargs": job.kwargs}
    problems = list[str]()
    for name, (kind, rule) in KINDS.items():
        value = given.get(name, stored[name])
        if not isinstance(value, kind):
            problems.append(f"{name} is {'not' if name in given else 'stored as a value that is not'} {rule}.")
    if problems:
        return stored, problems
    values = {**stored, **given}
    try:
        if given:
            values, problems = _restored(job, stored, values)
        payload.dumps_arguments(values["args"], values["kwargs"])
        if (entry := declared(job.task)) is not None:
            check_call(entry.func, values["args"], values["kwargs"], takes_context=entry.takes_context)
    except InvalidArguments as error:
        problems.append(message_of(error))
    except RecursionError:
        problems.append(sentence("The arguments are nested too deeply."))
    return values, problems


def _restored(job: Job, stored: dict[str, Any], given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    shown = dict(zip(KINDS, arguments_of(job), strict=True))
    moved = {name for name, value in given.items() if names_other_place(value, shown[name])}
    values, problems = {}, list[str]()
    for name, value in given.items():
        values[name] = restored(value, shown[name], stored[name], moved=bool(moved - {name}))
        hidden = [] if values[name] == stored[name] else places_of_masks(values[name], name)
        if hidden:
            names = ", ".join(place[:200] for place in hidden[:MAX_NAMED])
            problems.append(
                sentence(
                    "%(names)s: hidden as %(mask)s. Write the value again, because a value beside it was changed, and a secret is not "
                    "moved to another place.",
                    names=names,
                    mask=MASK,
                )
            )
    return values, problems


def _enqueue(job: Job, values: dict[str, Any], *, is_changed: bool) -> Any:
    entry = declared(job.task)
    task = placeholder(job.task) if entry is None else entry.task
    options: dict[str, Any] = {"priority": job.priority, "queue_name": job.queue, "backend": job.backend}
    if isinstance(task, JobTask):
        options |= {"max_attempts": job.max_attempts, "recovery": job.recovery, "metadata": job.metadata}
        options |= {"timeout": time_limits.of_options(job.options), "tenant": job.tenant or None, "webhook_url": job.webhook_url or None}
        for name, value in (("target", job.target), ("unique_key", job.unique_key)):
            if not (is_changed and callable(getattr(task, name))):
                options[name] = partial(_constant, value)  # a callable, because None means that of the task
    task = task.using(**{name: value for name, value in options.items() if value is not None})
    return backend_of(task).enqueue(task, values["args"], values["kwargs"])


def _constant(text: str, *args: Any, **kwargs: Any) -> str | None:
    return text or None
