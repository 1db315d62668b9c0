"""The moves of a job: enqueue, claim, finish, control, expire, promote, release. Each move is one short transaction."""
