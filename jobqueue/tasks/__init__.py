"""Tasks: which functions can run, with which options, and the context of a running task."""
