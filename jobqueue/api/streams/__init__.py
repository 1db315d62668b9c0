"""Streams of events: their limits, their steps, and the two server interfaces."""
