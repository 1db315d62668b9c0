"""The REST API: plain Django views over the verbs of ``lifecycle``, and the OpenAPI document that is made of the same table."""
