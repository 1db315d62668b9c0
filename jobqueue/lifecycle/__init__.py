"""The verbs of a job's life, each one short transaction: enqueue, claim, finish, control, expire, promote."""
