"""Index, search and picture the source of Python's standard library."""
