"""Tests of the spans of OpenTelemetry."""
