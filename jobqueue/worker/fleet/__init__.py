"""Several worker processes under one, and the number of their slots."""
