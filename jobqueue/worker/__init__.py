"""The worker process: a package for each role, and the supervisor that wires them."""
