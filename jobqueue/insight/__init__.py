"""The values that the admin, the REST API and the command line show. Nothing in this package writes to the database."""
