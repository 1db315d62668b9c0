"""What happened to jobs, told in the transaction in which it happened."""
