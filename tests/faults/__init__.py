"""Real worker processes, and what may happen to them."""
