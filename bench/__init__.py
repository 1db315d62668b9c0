"""Benchmarks that compare jobqueue with raw SQL on the same machine, in one run: ``python -m bench``."""
