"""The end of one job and the start of the next of its target, in one message: most of a line's time is the way to the server and back.

The lock comes first, the end second, the next job third, each a statement of its own that sees what the one before did, as when
they are sent one by one. The server alone decides whether to go on: a setting of the transaction says how far it came, and each
statement does nothing where the one before did not succeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobqueue.core.queue_rules import ServedQueues
from jobqueue.core.targets import Target
from jobqueue.db import plans, run_ends
from jobqueue.db.claims import in_claim_order
from jobqueue.db.records import Claimed, EndedRun, LeaseHolder, Relayed, RunEnd
from jobqueue.db.writes import Writes

STEP = "jobqueue.step"
# The settings are what `HINT` and `KEEP` say: a statement that is prepared must be one alone.
LOCK = (
    "SELECT set_config('enable_sort', 'off', TRUE), set_config('enable_incremental_sort', 'off', TRUE),"
    " set_config('plan_cache_mode', 'force_generic_plan', TRUE),"
    f" set_config('{STEP}', CASE WHEN pg_try_advisory_xact_lock(%s) THEN 'locked' ELSE 'passed over' END, TRUE)"
)
LOCKED = f"current_setting('{STEP}', TRUE) = 'locked'"
TELL_ENDED = f", set_config('{STEP}', 'ended', TRUE)"
ENDED = f"current_setting('{STEP}', TRUE) = 'ended'"


def relay(database: Writes, end: RunEnd, hand_over: tuple[LeaseHolder, Target, ServedQueues, Sequence[str]]) -> Relayed:
    """Lock a target, end its job, take over the next; the caller has opened the transaction."""
    lender, target, queues, closed = hand_over
    [[(*_, step)], ended, taken] = plans.together(
        database.connection,
        [
            (LOCK, [target.key]),
            run_ends.statement(database, [end], LOCKED, TELL_ENDED),
            database.handing_over(lender, [target], queues, closed, ENDED),
        ],
    )
    return Relayed(
        step == "locked",
        [EndedRun(*row) for row in database.heard_of(ended, len(EndedRun._fields))],
        in_claim_order(map(Claimed._make, taken)),
    )
