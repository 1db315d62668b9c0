"""Bulk actions: one verb on all jobs that a search finds, done by the leader of a duty."""
