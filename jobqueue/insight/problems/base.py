"""The form of a problem, and the thresholds above which a value is a problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from jobqueue.core.masking import mask_text
from jobqueue.core.sentences import Sentence, changed, counted, sentence
from jobqueue.insight.workers import HEARD_SECONDS

MAX_COUNTED: Final = 10_000
MAX_NAMED: Final = 10  # objects of one kind that are listed separately; the rest are counted
MAX_SECONDS: Final = 366 * 24 * 3600
OFF: Final = "off"


class Severity(StrEnum):
    """The severity of a problem. An error prevents jobs from running. A warning requires an operator, but other jobs still run."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class PageLink:
    """A page of the admin: its URL name without the namespace, the arguments of the URL, and the query."""

    page: str
    args: tuple[str, ...] = ()
    query: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    `code` names the kind for programs. `subject` names the object if there is one; otherwise `count` objects have
    the problem, or more if `more` is set. `link` leads to exactly these objects.
    """

    code: str
    severity: Severity
    text: str
    fix: str
    subject: str = ""
    count: int = 1
    more: bool = False
    link: PageLink | None = None


def _threshold(default: float | None, unit: str, help_text: str) -> Any:
    return field(default=default, metadata={"unit": unit, "help": help_text})


SECONDS, NUMBER = "SECONDS", "N"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The values above which something is a problem; None disables the check.

    Each field is an option of ``manage.py jobqueue health``: `max_age` is ``--max-age``.
    """

    since: float = _threshold(3600.0, SECONDS, "how far back failures count")
    max_age: float | None = _threshold(None, SECONDS, "how long a QUEUED job may wait")
    max_silent: float | None = _threshold(float(HEARD_SECONDS), SECONDS, "the maximum age of a worker's heartbeat")
    max_stuck_threads: float | None = _threshold(0, NUMBER, "stuck threads of a worker")
    max_unserved_queues: float | None = _threshold(0, NUMBER, "queues with QUEUED jobs that no live worker serves")
    max_failed_jobs: float | None = _threshold(0, NUMBER, "jobs that ended in ERROR")
    max_blocked_targets: float | None = _threshold(0, NUMBER, "targets whose jobs wait for a job that is PAUSED or in ERROR")
    max_failing_schedules: float | None = _threshold(0, NUMBER, "schedules whose job could not be enqueued")
    max_failed_webhooks: float | None = _threshold(0, NUMBER, "webhook deliveries that were given up")
    max_retried_webhooks: float | None = _threshold(0, NUMBER, "webhook deliveries that are retried after a failure")
    max_webhook_delay: float | None = _threshold(300.0, SECONDS, "how long a webhook delivery may be due")


THRESHOLDS: Final = {field.name: field for field in fields(Thresholds)}


def within(seconds: float) -> Sentence:
    """Return a length of time until now as text."""
    if seconds >= 86_400 and seconds % 86_400 == 0:
        return counted("in the last day", "in the last %(number)s days", int(seconds // 86_400))
    if seconds >= 3600 and seconds % 3600 == 0:
        return counted("in the last hour", "in the last %(number)s hours", int(seconds // 3600))
    if seconds >= 60 and seconds % 60 == 0:
        return counted("in the last minute", "in the last %(number)s minutes", int(seconds // 60))
    return sentence("in the last %(seconds)s s", seconds=f"{seconds:g}")


def above(number: float | None, threshold: float | None) -> bool:
    """Return whether a value is a problem."""
    return number is not None and threshold is not None and number > threshold


def masked(problem: Problem) -> Problem:
    """Return a problem with masked secrets, and without a link whose URL would contain one."""
    link = problem.link
    if link is not None and any(mask_text(value) != value for value in link.query.values()):
        link = None
    return replace(problem, text=changed(problem.text, mask_text), subject=mask_text(problem.subject), link=link)


def shortened(problems: Iterable[Problem]) -> list[Problem]:
    """Return at most `MAX_NAMED` problems of one code; if there are more, the last one counts the rest."""
    every = list(problems)
    if len(every) <= MAX_NAMED:
        return every
    first, rest = every[: MAX_NAMED - 1], len(every) - MAX_NAMED + 1
    head = every[0]
    text = sentence("%(number)s more problems of this kind (%(code)s).", number=rest, code=head.code)
    link = None if head.link is None else PageLink(head.link.page.replace("_change", "_changelist"))
    return [*first, Problem(head.code, head.severity, text, head.fix, count=rest, link=link)]
