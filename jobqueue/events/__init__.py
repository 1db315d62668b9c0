"""The log of events: what writes it in the transaction of a move, and what streams it to clients."""
