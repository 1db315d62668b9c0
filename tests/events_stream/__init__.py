"""Tests of the streams of events: formats and rights, and what a real server does with many clients."""
