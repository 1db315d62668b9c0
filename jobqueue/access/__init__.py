"""Rules of access: which user may see which jobs, what is masked for all users, and the audit of changes."""
