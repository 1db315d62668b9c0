"""A project's own models that refer to jobs."""
