"""Tests of the duties and their leaders."""
