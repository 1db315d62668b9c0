"""Tests of the demo project."""
