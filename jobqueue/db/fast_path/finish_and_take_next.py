"""The end of one job and the start of the next of its target, in one message, because round trips take most of a line's time.

The lock comes first, then the end, then the next job. Each is a separate statement that sees the effects of the
one before, as if they were sent one by one. The server alone decides whether to continue: a setting of the
transaction records the last step, and each statement does nothing if the one before did not succeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobqueue.core.queue_rules import ServedQueues
from jobqueue.core.targets import Target
from jobqueue.db import events, run_ends, targets
from jobqueue.db.claims import in_claim_order
from jobqueue.db.database import Database
from jobqueue.db.fast_path import plans
from jobqueue.db.records import Claimed, EndedRun, LeaseHolder, Relayed, RunEnd

STEP = "jobqueue.step"
# The settings are those of `HINT` and `KEEP`, within the statement, because a prepared statement must be a single
# one.
LOCK = (
    "SELECT set_config('enable_sort', 'off', TRUE), set_config('enable_incremental_sort', 'off', TRUE),"
    " set_config('plan_cache_mode', 'force_generic_plan', TRUE),"
    f" set_config('{STEP}', CASE WHEN pg_try_advisory_xact_lock(%s) THEN 'locked' ELSE 'passed over' END, TRUE)"
)
LOCKED = f"current_setting('{STEP}', TRUE) = 'locked'"
TELL_ENDED = f", set_config('{STEP}', 'ended', TRUE)"
ENDED = f"current_setting('{STEP}', TRUE) = 'ended'"


def relay(db: Database, end: RunEnd, hand_over: tuple[LeaseHolder, Target, ServedQueues, Sequence[str]]) -> Relayed:
    """Lock a target, end its job, and take over the next job. The caller has opened the transaction."""
    holder, target, queues, excluded_queues = hand_over
    [[(*_, step)], ended, taken] = plans.together(
        db.connection,
        [
            (LOCK, [target.key]),
            run_ends.statement(db, [end], LOCKED, TELL_ENDED),
            targets.handing_over(db, holder, [target], queues, excluded_queues, ENDED),
        ],
    )
    return Relayed(
        step == "locked",
        [EndedRun(*row) for row in events.sent(db, ended, len(run_ends.returned([end])))],
        in_claim_order(map(Claimed._make, taken)),
    )
