"""Tests with real worker processes and faults."""
