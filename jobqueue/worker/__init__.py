"""The worker process: one part per role, wired by the supervisor."""
