"""Commands of the workload."""
