"""PostgreSQL's statement that ends runs which failed: many in one message, each with what it tells of itself, and its events."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jobqueue import event_names as names
from jobqueue.db.columns import Columns
from jobqueue.db.events import OF_JOB
from jobqueue.db.records import Failed, Lease
from jobqueue.db.writes import BEGUN, Writes

ENDS = (
    "job_id bigint, token bigint, began_ago float8, delay_seconds float8, message text, metadata text, progress int, failure jsonb,"
    " data jsonb"
)
# As `datetime.isoformat` writes it, whatever the session's time zone is.
ISO = """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')"""


class Failures(Writes):
    """End runs that failed."""

    def fail(self, ends: Sequence[Failed], *, again: bool, longest: int) -> list[Lease]:
        """Move runs to PENDING, to run `again`, or to ERROR, and return the rows written; see `Database.fail`."""
        rows = Columns([end[:2] for end in ends], Lease)
        label, status = ("RETRY", "PENDING") if again else ("ERROR", "ERROR")
        changes = (
            f"waiting_for = 'time', finished_at = NULL, run_at = {self.now} + make_interval(secs => o.delay_seconds)"
            if again
            else f"waiting_for = '', finished_at = {self.now}"
        )
        began = f"coalesce(j.started_at, {self.now} - make_interval(secs => o.began_ago))"
        entry = (
            f"jsonb_build_object('attempt', j.attempt, 'worker', j.lease_owner, 'outcome', '{label}', 'started_at', {ISO.format(began)},"
            f" 'finished_at', {ISO.format(self.now)}) || o.failure"
        )
        happened = (
            f"SELECT m.id AS job_id, e.name, CASE e.n WHEN 1 THEN m.started_at ELSE {self.now} END AS at, m.attempt,"
            f" {OF_JOB.format('m', 'CASE e.n WHEN 2 THEN m.data END')} FROM moved AS m"
            f" CROSS JOIN (VALUES (1, '{names.STARTED}'), (2, '{names.RETRYING if again else names.FAILED}')) AS e(n, name)"
            " WHERE e.n = 2 OR m.id IN (SELECT id FROM mine WHERE fresh)"
        )
        sql = (
            f"WITH mine AS MATERIALIZED ({self.mine(rows, only=self._plain(again))}), moved AS ({self.updating('j')}"
            f"status = '{status}', {changes}, failures = j.failures + 1, message = o.message, {self._began('o.began_ago')},"
            " progress = coalesce(o.progress, j.progress), metadata = coalesce(o.metadata::jsonb, j.metadata),"
            f" worker_ids = j.worker_ids || to_jsonb(j.lease_owner), history = j.history || jsonb_build_array({entry}),"
            " lease_owner = '', lease_expires_at = NULL, heartbeat_at = NULL, cancel_requested = FALSE, cancel_outcome = ''"
            f" FROM json_to_recordset(%(ends)s::json) AS o({ENDS})"
            " WHERE j.id = o.job_id AND j.lease_token = o.token AND j.id = ANY(ARRAY(SELECT id FROM mine))"
            f" RETURNING {BEGUN}, o.data){self.telling(happened)} {self.answer('id', 'lease_token')}"
        )
        params = {**rows.params, "ends": json.dumps([end._asdict() for end in ends]), "longest": longest}
        with self.hot():
            return [Lease(*row) for row in self.heard_of(self.rows(sql, params), 2)]

    def _plain(self, again: bool) -> str:
        """Return the condition that a row is one of those that `fail` writes."""
        unasked = " AND NOT j.cancel_requested" if again else ""
        lists = (
            "CASE WHEN jsonb_typeof(j.history) = 'array' THEN jsonb_array_length(j.history) < %(longest)s ELSE FALSE END"
            " AND jsonb_typeof(j.worker_ids) = 'array'"
        )
        return f"{unasked} AND j.phase = '' AND NOT coalesce(j.options ? 'unknown_since', FALSE) AND {lists}"
