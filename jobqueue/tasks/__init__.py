"""Tasks: what may run, with which options, and what a running task sees."""
