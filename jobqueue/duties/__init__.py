"""Cluster-wide maintenance: each duty is an object with `run_once`, which one worker at a time runs under a lease, or every worker."""
