"""Measure jobqueue beside the limit that raw SQL reaches on the same machine, in one run: ``python -m bench``."""
