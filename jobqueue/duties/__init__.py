"""What must be done for all by one worker at a time, or by every one: small objects with `run_once`, under leases."""
