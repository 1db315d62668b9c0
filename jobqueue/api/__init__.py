"""The REST API: plain Django views for the verbs of ``lifecycle``, and an OpenAPI document from the same table."""
