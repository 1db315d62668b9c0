"""Send messages about jobs to receivers elsewhere: the outbox, the guard of addresses, the sending, the crew of senders."""
