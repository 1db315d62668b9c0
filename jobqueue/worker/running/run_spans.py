"""The CONSUMER span of one run. It links to the span of the enqueue, and is no child of it, since a run can be hours later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobqueue import public_ids, tracing
from jobqueue.core import repeats
from jobqueue.lifecycle.outcome import Failure

if TYPE_CHECKING:
    from jobqueue.worker.running.run import Run


class RunSpan:
    """The span of a run, as a context manager around its execution. Errors of the project's provider do not affect the run."""

    def __init__(self, run: Run) -> None:
        """Prepare the span."""
        self._run = run
        self._span: Any = None
        self._token: Any = None

    def __enter__(self) -> None:
        """Start the span, and make it the current one."""
        _robustly(self._start)

    def __exit__(self, *error: object) -> None:
        """End the span with the outcome of the run."""
        if self._span is not None:
            _robustly(self._end)

    def _start(self) -> None:
        from opentelemetry.context import Context, attach
        from opentelemetry.trace import SpanKind, set_span_in_context

        job = self._run.job
        values = tracing.attributes("process", "process", job.task, job.queue)
        values |= {"messaging.message.id": public_ids.public_id(job.id), "jobqueue.attempt": job.attempt}
        if job.phase:
            values["jobqueue.phase"] = job.phase
        self._span = tracing.tracer().start_span(
            f"process {values['messaging.destination.name']}",
            Context(),
            SpanKind.CONSUMER,
            values,
            tracing.links(job.options),
        )
        self._token = attach(set_span_in_context(self._span))

    def _end(self) -> None:
        from opentelemetry.context import detach

        if self._token is not None:
            detach(self._token)
        if (outcome := self._run.outcome) is not None:
            self._span.set_attribute("jobqueue.outcome", outcome.kind.value)
            if outcome.failure is not None:
                self._record(outcome.failure)
        self._span.end()

    def _record(self, failure: Failure) -> None:
        """Record a failure by its texts, in which the secrets of the job are masked."""
        from opentelemetry.trace import StatusCode

        texts = {"exception.type": failure.path, "exception.message": failure.summary, "exception.stacktrace": failure.traceback}
        self._span.add_event("exception", texts)
        self._span.set_attribute("error.type", failure.path)
        self._span.set_status(StatusCode.ERROR, failure.summary)


def _robustly(step: Callable[[], None]) -> None:
    try:
        step()
    except Exception:  # noqa: BLE001 - code of the project, such as a span processor, can raise anything
        repeats.log(logging.ERROR, "The span of a run could not be started or ended; the job runs anyway.", exc_info=True)
