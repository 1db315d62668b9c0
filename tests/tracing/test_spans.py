"""The spans of enqueues and runs, with the SDK's exporter in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from jobqueue import enqueue_many, tracing
from jobqueue.core.service import Service
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests import tasks
from tests.faults.harness import ROOT

pytestmark = pytest.mark.django_db
Spans = Callable[[], list[ReadableSpan]]


def provide(monkeypatch: pytest.MonkeyPatch, provider: TracerProvider) -> None:
    """Set a provider for one test; the public function works only once in a process."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Set a provider, and return a function that returns the spans that have ended, in order."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provide(monkeypatch, provider)
    yield lambda: list(exporter.get_finished_spans())
    provider.shutdown()


def of_kind(spans: Spans, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in spans() if span.kind is kind]


def options(job_id: int) -> dict[str, Any]:
    found: dict[str, Any] = Job.objects.get(pk=job_id).options
    return found


def test_an_enqueue_is_a_producer_span_whose_context_is_stored_with_the_job(spans: Spans) -> None:
    result = tasks.add.using(queue_name="mail", timeout=30).enqueue(1, 2)
    [span] = spans()
    assert (span.name, span.kind) == ("enqueue mail", SpanKind.PRODUCER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "jobqueue",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": result.id,
        "jobqueue.task": tasks.add.module_path,
        "jobqueue.created": True,
    }
    context = span.get_span_context()
    traceparent = f"00-{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}-{context.trace_flags:02x}"
    assert options(result.job_id) == {"timeout": 30.0, "traceparent": traceparent}


def test_a_run_is_a_consumer_span_that_links_to_the_enqueue_and_is_no_child_of_it(spans: Spans) -> None:
    with trace.get_tracer("test").start_as_current_span("request") as request:
        result = tasks.add.enqueue(1, 2)
        run_until_idle()
    [made], [run] = of_kind(spans, SpanKind.PRODUCER), of_kind(spans, SpanKind.CONSUMER)
    assert made.parent is not None
    assert made.parent.span_id == request.get_span_context().span_id
    assert (run.name, run.parent, run.status.status_code) == ("process default", None, StatusCode.UNSET)
    assert [link.context.span_id for link in run.links] == [made.get_span_context().span_id]
    assert dict(run.attributes or {}) == {
        "messaging.system": "jobqueue",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": result.id,
        "jobqueue.task": tasks.add.module_path,
        "jobqueue.attempt": 1,
        "jobqueue.outcome": "success",
    }


def test_a_bulk_enqueue_is_one_span_to_which_the_runs_of_all_its_jobs_link(spans: Spans) -> None:
    enqueue_many(tasks.add, [((1, 2), {}), ((3, 4), {})])
    run_until_idle()
    [made], runs = of_kind(spans, SpanKind.PRODUCER), of_kind(spans, SpanKind.CONSUMER)
    assert (made.attributes or {})["messaging.batch.message_count"] == 2
    assert [link.context.span_id for run in runs for link in run.links] == [made.get_span_context().span_id] * 2


def test_a_failure_is_recorded_with_its_secrets_masked(spans: Spans) -> None:
    tasks.fail.enqueue("password=hunter2")
    run_until_idle()
    [run] = of_kind(spans, SpanKind.CONSUMER)
    [event] = run.events
    texts = dict(event.attributes or {})
    assert (event.name, run.status.status_code, (run.attributes or {})["jobqueue.outcome"]) == ("exception", StatusCode.ERROR, "error")
    assert (run.attributes or {})["error.type"] == texts["exception.type"]
    assert "Traceback" in str(texts["exception.stacktrace"])
    assert "hunter2" not in run.to_json()


def test_a_row_that_was_edited_costs_the_link_only(spans: Spans) -> None:
    for value in ({"traceparent": 7}, {"traceparent": "x" * 100}, ["traceparent"], "traceparent"):
        job = Job.objects.get(pk=tasks.add.enqueue(1, 2).job_id)
        Job.objects.filter(pk=job.pk).update(options=value)
    assert run_until_idle() == 4
    assert [len(run.links) for run in of_kind(spans, SpanKind.CONSUMER)] == [0] * 4


def test_a_span_that_is_not_sampled_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, TracerProvider(sampler=ALWAYS_OFF))
    result = tasks.add.enqueue(1, 2)
    assert options(result.job_id) == {}
    assert run_until_idle() == 1


def test_a_broken_provider_fails_no_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            if span.kind is SpanKind.CONSUMER:
                raise ValueError("a bug in the project")

        def on_end(self, span: Any) -> None:
            if span.kind is SpanKind.CONSUMER:
                raise ValueError("a bug in the project")

    result = tasks.add.enqueue(1, 2)
    provider = TracerProvider()
    provider.add_span_processor(Broken())
    provide(monkeypatch, provider)
    assert run_until_idle() == 1
    assert Job.objects.get(pk=result.job_id).status == "SUCCESS"
    assert "The span of a run could not be started or ended; the job runs anyway." in caplog.text


def test_a_service_of_a_worker_makes_no_span(spans: Spans) -> None:
    seen: list[Any] = []

    class Scheduler(Service):
        def turn(self) -> None:
            with tracing.producer("a.task", "mail") as span:
                seen.append(span)
            self.stop()

    service = Scheduler()
    service.start()
    assert service.join(10)
    assert (seen, spans()) == ([None], [])


def test_without_a_provider_nothing_is_stored() -> None:
    assert tracing.tracer() is None
    result = tasks.add.enqueue(1, 2)
    assert options(result.job_id) == {}
    with tracing.producer("a.task", "mail") as span:
        assert span is None
    assert tracing.with_context("{}", None) == "{}"


def test_without_opentelemetry_nothing_of_it_is_imported() -> None:
    code = """
import sys, django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "jobqueue"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TASKS={"default": {"BACKEND": "jobqueue.backends.DatabaseBackend"}})
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from jobqueue.lifecycle.enqueue import JobSpec, enqueue
import jobqueue.worker.process.supervisor
enqueue(JobSpec("a.task"))
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_only_texts_that_fit_into_a_header_are_taken_from_a_row() -> None:
    good = {"traceparent": "00-7-7-01", "tracestate": "a=1"}
    assert tracing.carrier_of({**good, "timeout": 30.0}) == good
    for value in ("a\r\nx: 1", "\u00e4", "", "x" * 513, 7, None, ["a"]):
        assert tracing.carrier_of({"traceparent": value, "tracestate": "a=1"}) == {"tracestate": "a=1"}
    assert tracing.carrier_of("traceparent") == tracing.carrier_of(None) == tracing.carrier_of([1]) == {}
