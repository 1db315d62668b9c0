"""Tests of the log of events."""
