"""Tests of the probes of a worker."""
