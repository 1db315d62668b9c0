"""The log of events: writing in the transaction of a move, replay, and streams to clients."""
