"""Streams of events: their limits, their messages, and the variants for ASGI and WSGI."""
