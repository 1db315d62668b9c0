"""The read models for people: what the admin, the REST API and the command line show. Nothing here writes."""
