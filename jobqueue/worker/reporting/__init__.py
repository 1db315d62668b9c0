"""What a worker reports of its runs: outcomes, starts and progress, renewed leases, and signals."""
