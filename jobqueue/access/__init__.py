"""Who may see what, what is hidden from everyone, and the record of who did what."""
