"""The library: an index, a search and pictures of the source of Python's standard library."""
