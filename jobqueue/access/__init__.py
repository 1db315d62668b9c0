"""Rules of access: which user may see which jobs, which values are masked, and the audit of changes."""
