"""Retention: the rules that mark and delete ended jobs, and the deletion in batches."""
