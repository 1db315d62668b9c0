"""Tests of the read-only part."""
