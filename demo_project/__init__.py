"""Show `jobqueue` at work: a small site that indexes the source of the running Python's standard library."""
