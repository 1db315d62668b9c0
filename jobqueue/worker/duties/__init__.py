"""The threads that lead and do the duties of the fleet."""
