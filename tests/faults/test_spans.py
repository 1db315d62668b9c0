"""The spans of a real worker process, which its own exporter writes to a file, and the trace in the requests of webhooks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

from tests.faults import pipelines, tasks
from tests.faults.harness import Workers, job_id, wait_for, wait_until
from tests.tracing.spans import VARIABLE, written
from tests.tracing.test_spans import Spans, of_kind, options, spans
from tests.webhooks.receivers import Receiver, says

__all__ = ["spans"]

pytestmark = [pytest.mark.faults, pytest.mark.django_db]
ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "tests.tracing.settings"}


def test_each_run_of_a_worker_links_to_the_span_of_its_enqueue(workers: Workers, tmp_path: Path, spans: Spans) -> None:
    receiver = Receiver(says(200))
    expected = [
        (workers.enqueue(tasks.work), ["success"]),
        (awork := workers.enqueue(tasks.awork, webhook_url=receiver.url), ["success"]),
        (workers.enqueue(tasks.fail_once), ["retry", "success"]),
        (workers.enqueue(tasks.fatal), ["error"]),
        (workers.enqueue(tasks.book, "a group"), ["success"]),
        (workers.enqueue(pipelines.coroutine), ["sleep", "success"]),
    ]
    made = {span.attributes["messaging.message.id"]: span.get_span_context() for span in of_kind(spans, SpanKind.PRODUCER)}
    assert len(made) == len(expected)
    path = tmp_path / "spans"
    worker = workers.start(
        environment={**ENVIRONMENT, VARIABLE: str(path)},
        WEBHOOK_ALLOWED_HOSTS=["127.0.0.1"],
        TASK_MODULES=["tests.faults.tasks", "tests.faults.pipelines"],
    )
    for job, _ in expected:
        wait_for(job, "SUCCESS", "ERROR")
    wait_until(lambda: receiver.requests, "the webhook was received")
    assert worker.stop() == 0
    receiver.close()
    found = [span for span in written(path) if span["kind"] == "SpanKind.CONSUMER"]
    for job, outcomes in expected:
        runs = [span for span in found if span["attributes"]["messaging.message.id"] == job.id]
        assert [run["attributes"]["jobqueue.outcome"] for run in runs] == outcomes
        assert [run["attributes"]["jobqueue.attempt"] for run in runs] == ([1, 2] if outcomes[0] == "retry" else [1] * len(runs))
        context = made[job.id]
        for run in runs:
            assert run["parent_id"] is None, "a run can be hours later, so it is no child"
            assert [link["context"]["span_id"] for link in run["links"]] == [f"0x{format_span_id(context.span_id)}"]
            assert run["status"]["status_code"] == ("ERROR" if run["attributes"]["jobqueue.outcome"] in ("retry", "error") else "UNSET")
            assert [event["name"] for event in run["events"]] == (["exception"] if run["status"]["status_code"] == "ERROR" else [])
    assert Counter(span["context"]["trace_id"] for span in found).most_common(1)[0][1] == 1, "each run has a trace of its own"
    context = made[awork.id]
    trace = f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
    assert {request.headers["traceparent"] for request in receiver.requests} == {trace} == {options(job_id(awork))["traceparent"]}


def test_a_worker_without_a_provider_sends_no_trace(workers: Workers) -> None:
    receiver = Receiver(says(200))
    job: Any = workers.enqueue(tasks.work, webhook_url=receiver.url)
    assert options(job_id(job)) == {}
    worker = workers.start(WEBHOOK_ALLOWED_HOSTS=["127.0.0.1"])
    wait_until(lambda: receiver.requests, "the webhook was received")
    assert worker.stop() == 0
    receiver.close()
    assert "traceparent" not in receiver.requests[0].headers
