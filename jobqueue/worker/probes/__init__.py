"""Probes: the state of a worker process over HTTP and for systemd, without a query to the database."""
