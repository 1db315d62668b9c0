"""Schedules: declarations in code, their rows, and the ticks that enqueue jobs."""
