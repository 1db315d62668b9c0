"""Duties and who leads them."""
