"""Spans of OpenTelemetry: one for each enqueue, and one for each run (``worker/running/run_spans.py``).

Nothing of OpenTelemetry is imported here, unless the project has imported it and has set a tracer provider. Without that, the cost is one
query of `sys.modules`. The context of the span of an enqueue is stored in the job's options, as W3C Trace Context.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jobqueue.core.masking import mask_text
from jobqueue.core.service import in_service_thread

API: Final = "opentelemetry.trace"
PARENT: Final = "traceparent"
FIELDS: Final = (PARENT, "tracestate")
HEADER: Final = re.compile(r"[ -~]{1,512}")
SYSTEM: Final = "jobqueue"

_known: tuple[Any, Any] = (None, None)  # the last provider, and its tracer; None if it is a placeholder


def tracer() -> Any:
    """Return the tracer of the project's provider; None if OpenTelemetry is not in use."""
    if (api := sys.modules.get(API)) is None:
        return None
    return _tracer_of(api)


def _tracer_of(api: Any) -> Any:
    global _known  # noqa: PLW0603 - a provider creates a tracer at each call
    provider = api.get_tracer_provider()
    if _known[0] is not provider:
        is_set = not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
        version = getattr(sys.modules.get("jobqueue"), "__version__", None)
        _known = (provider, provider.get_tracer("jobqueue", version) if is_set else None)
    return _known[1]


def attributes(operation: str, kind: str, task: str, queue: str) -> dict[str, Any]:
    """Return the attributes of a span, by the semantic conventions for messaging; `kind` is the type of the operation."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": mask_text(queue),
        "jobqueue.task": mask_text(task),
    }


@contextlib.contextmanager
def producer(task: str, queue: str, number: int | None = None) -> Iterator[Any]:
    """Surround an enqueue with a PRODUCER span, and yield the span; yield None if there is no tracer.

    `number` is the number of jobs of a bulk enqueue. Services of a worker get no span, since the code of the project that processes spans
    must not run in their threads.
    """
    found = None if in_service_thread() else tracer()
    if found is None:
        yield None
        return
    from opentelemetry.trace import SpanKind, StatusCode

    values = attributes("enqueue", "send", task, queue)
    if number is not None:
        values["messaging.batch.message_count"] = number
    name = f"enqueue {values['messaging.destination.name']}"
    # The span gets the type of an error only, since its text can have values of the row.
    given = {"kind": SpanKind.PRODUCER, "attributes": values, "record_exception": False, "set_status_on_exception": False}
    with found.start_as_current_span(name, **given) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
            raise


def with_context(options: str, span: Any) -> str:
    """Return a job's options as JSON text, with the context of a span that is recorded."""
    if span is None or not span.is_recording():
        return options
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return json.dumps({**json.loads(options), **carrier})


def links(options: str) -> list[Any]:
    """Return the link to the span of the enqueue whose context is in a job's options (JSON text); the options may have any value."""
    if PARENT not in options:
        return []
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    with contextlib.suppress(ValueError, RecursionError):  # another program has edited the row
        context = get_current_span(TraceContextTextMapPropagator().extract(carrier_of(json.loads(options)))).get_span_context()
        return [Link(context)] if context.is_valid else []
    return []


def carrier_of(options: Any) -> dict[str, str]:
    """Return the stored context of a job as headers; empty if there is none. The options may have any value."""
    given = options if isinstance(options, Mapping) else {}
    return {name: value for name in FIELDS if isinstance(value := given.get(name), str) and HEADER.fullmatch(value)}
