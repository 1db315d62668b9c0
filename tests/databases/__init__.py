"""A project whose jobs have a database of their own."""
