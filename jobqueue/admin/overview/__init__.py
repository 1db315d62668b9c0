"""The Overview: the index of the app. ``data`` reads and keeps, ``rows`` formats, ``page`` puts the parts together."""
