"""An exporter that appends spans to a file, for worker processes (``TEST_SPANS`` names the file)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

VARIABLE = "TEST_SPANS"


class FileExporter(SpanExporter):
    """Append each span as one line of JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append the spans."""
        with self._path.open("a") as file:
            for span in spans:
                file.write(span.to_json(indent=None).replace("\n", " ") + "\n")
        return SpanExportResult.SUCCESS


def set_up() -> None:
    """Set the tracer provider of this process, as the settings or the ``wsgi.py`` of a project do."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter(Path(os.environ[VARIABLE]))))
    trace.set_tracer_provider(provider)


def written(path: Path) -> list[dict[str, Any]]:
    """Return the spans in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
