"""The rules of jobs as pure functions and data: no model, no database."""
