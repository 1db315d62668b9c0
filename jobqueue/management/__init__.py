"""The management commands ``runworkers`` and ``jobqueue``, and the code of the subcommands."""
