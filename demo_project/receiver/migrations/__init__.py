"""The migrations of the receiver."""
