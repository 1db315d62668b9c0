"""Template filters of the library."""
