"""The tasks layer: declaring, options, enqueue, results, and the backends for tests."""
