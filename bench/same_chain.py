"""The chain of one line with the statements of jobqueue itself, sent by a bare loop that keeps their plans.

The difference to a worker is the cost of the rest: threads, the run of the task, the record of held jobs, the claim
after each 20 jobs.
"""

from __future__ import annotations

import time
from typing import Any

from django.db import connection
from psycopg import Cursor


def run(jobs: int, target_name: str = "t0") -> dict[str, Any]:
    """Take the parked jobs of a target one after another; return the jobs per second."""
    from jobqueue.core import queue_rules
    from jobqueue.core.event_names import COMPLETED
    from jobqueue.core.targets import Target
    from jobqueue.db import LeaseHolder, run_ends, targets
    from jobqueue.db.fast_path.finish_and_take_next import ENDED, LOCK, LOCKED, TELL_ENDED
    from jobqueue.db.records import RunEnd
    from jobqueue.models import Job

    database, target = Job.objects.database, Target("", target_name)
    holder = LeaseHolder("bare loop", 30.0)
    everything = queue_rules.ALL
    success = RunEnd(0, 0, "", False, "SUCCESS", "", COMPLETED, began_ago=0.0, ended_ago=0.0, progress=100, result="null")
    end, ending = run_ends.statement(database, [success], LOCKED, TELL_ENDED)
    follow, following = targets.handing_over(database, holder, [target], everything, (), ENDED)
    raw: Any = connection.connection
    raw.cursor_factory = Cursor  # Django's own cursor writes the values into the text, for which no plan can be kept
    raw.prepare_threshold = 0
    row = raw.execute(*targets.handing_over(database, holder, [target], everything, ())).fetchone()
    done, began = 0, time.perf_counter()
    while row is not None:
        ids = {"job_id": f"{{{row[0]}}}", "token": f"{{{row[2]}}}"}
        with raw.transaction(), raw.pipeline():
            raw.execute(LOCK, [target.key])
            raw.execute(end, {**ending, **ids})
            taken = raw.execute(follow, following)
        row = taken.fetchone()
        done += 1
    seconds = time.perf_counter() - began
    if done != jobs:
        raise RuntimeError(f"The line had {done} jobs, not {jobs}")
    return {"rate": jobs / seconds}
