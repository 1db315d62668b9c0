"""Messages about jobs to receivers: the outbox, the check of addresses, the sending, and the pool of senders."""
