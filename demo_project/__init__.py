"""A demo of `jobqueue`: a small site that indexes the source of the running Python's standard library."""
