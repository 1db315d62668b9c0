"""A small shop whose jobs are in trouble on purpose, so that the pages of the admin have something to show."""
