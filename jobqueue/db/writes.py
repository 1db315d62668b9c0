"""PostgreSQL's statements that make jobs and write their progress, each with the events that it makes happen.

Their parts are ``mine``, the locked rows as they were; ``moved``, the rows as they are now; ``happened``, the events;
and the inserts of the events. All parts are one statement, so they are written together or not at all, even without a
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jobqueue import conf, signals
from jobqueue.core import event_names as names
from jobqueue.db import autocommit_insert
from jobqueue.db.base import Database
from jobqueue.db.columns import Columns, cell
from jobqueue.db.eventlog import EVENTS
from jobqueue.db.events import DEFAULT, LOGGED, OF_JOB, QUEUES
from jobqueue.db.records import Event, Lease, Mark

COPY_BLOCK = 1000
TYPES = (
    "job_id bigint, name text, at timestamptz, attempt int, tenant text, target text, data text, queue text, task text,"
    " status text, url text"
)
EVENT = ", ".join(f"h.{name}" for name in Event._fields)
MADE = f"'{names.ENQUEUED}' AS name, j.created_at AS at, 0 AS attempt"
BEGUN = "j.id, j.lease_token, j.attempt, j.tenant, j.target, j.queue, j.task, j.status, j.webhook_url, j.started_at"


class Writes(Database):
    """The statements that write jobs together with their events."""

    message_id = "gen_random_uuid()"
    facts = (
        "jsonb_build_object('job_id', h.job_id, 'task', h.task, 'queue', h.queue, 'tenant', h.tenant, 'target', h.target,"
        f" 'status', h.status, 'attempt', h.attempt, 'at', h.at) || CASE WHEN h.name = '{names.FAILED}'"
        " THEN jsonb_build_object('message', h.data ->> 'message') ELSE '{}' END"
    )
    # Whether the lease is valid, in a form that statistics do not cover: if few jobs run, the planner would expect
    # two tiny sets, and compare each row of one with each of the other.
    alive = "CASE WHEN j.lease_expires_at IS NULL THEN FALSE ELSE TRUE END"
    # Two init plans: if no job and no queue has a URL, as usual, the events are not joined with the queues one by
    # one.
    if_any = f"(EXISTS (SELECT FROM happened WHERE url <> '') OR EXISTS (SELECT FROM {QUEUES} WHERE webhook_url <> '')) AND "
    asked_for = (
        f"CASE WHEN q.webhook_events IS NULL OR q.webhook_events = '[]' THEN h.name IN ({DEFAULT}) ELSE q.webhook_events ? h.name END"
    )

    # Pieces

    def recording(self, happened: str, *, sendable: bool = True) -> str:
        """Return the parts of a statement that write events, after a comma; those for webhooks only if `sendable`."""
        logged = "" if conf.current().event_log == "none" else f", logged AS ({self.log_events()})"
        sent = f", sent AS ({self.send_events()})" if sendable else ""
        return f", happened AS ({happened}){logged}{sent}"

    def answer(self, *columns: str) -> str:
        """Return the end of a statement that selects columns of `moved`, and the events if a receiver is connected; see `heard_of`."""
        mine = ", ".join(f"m.{column}" for column in columns)
        if not signals.listened_to(signals.job_event):
            return f"SELECT {mine} FROM moved AS m"
        return f"SELECT {mine}, {EVENT.replace('h.data', 'h.data::text')} FROM moved AS m LEFT JOIN happened AS h ON h.job_id = m.id"

    def heard_of(self, rows: Iterable[tuple[Any, ...]], columns: int) -> list[tuple[Any, ...]]:
        """Return the selected columns of an answer, one row for each job; send the events to the receivers of `job_event`."""
        found = list(rows)
        if not found or len(found[0]) == columns:
            return found
        events = [Event(*row[columns:]) for row in found if row[columns] is not None]
        events = [event._replace(at=self.moment(event.at)) for event in events]
        self.announce(sorted(events, key=lambda event: (event.at, event.name != names.STARTED)))
        return list(dict.fromkeys(row[:columns] for row in found))

    def write_events(self, events: str) -> None:
        """Write events that are given as JSON."""
        happened = (
            f"SELECT h.job_id, h.name, coalesce(h.at, {self.now}) AS at, h.attempt, h.tenant, h.target, h.data::jsonb AS data,"
            f" h.queue, h.task, h.status, h.url FROM json_to_recordset(%s::json) AS h({TYPES})"
        )
        self.rows(f"WITH nothing AS (SELECT 1){self.recording(happened)} SELECT 1", [events])

    # Begun and ended

    def mine(self, rows: Columns, more: str = "") -> str:
        """Return a select that locks the free rows whose leases are still valid, and returns their values before the change."""
        return (
            f"SELECT j.id, j.started_at IS NULL AS fresh{more} FROM {self.table} AS j, {rows.source}"
            f" WHERE j.id = o.job_id AND j.id = ANY({rows.ids}) AND j.lease_token = o.token AND {self.alive}"
            f" ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED"
        )

    def _began(self, ago: str) -> str:
        at = f"{self.now} - make_interval(secs => {ago})"
        return f"started_at = coalesce(j.started_at, {at}), first_started_at = coalesce(j.first_started_at, {at})"

    def mark(self, marks: Sequence[Mark]) -> list[Lease]:
        """Write the starts and the progress of runs; return the rows written."""
        rows = Columns(marks, Mark)
        shown = (
            f", coalesce({rows.progress}, j.progress) <> j.progress OR coalesce({rows.message}, j.message) <> j.message AS shown"
            if conf.current().event_log == "all"
            else ", FALSE AS shown"
        )
        happened = (
            f"SELECT m.id AS job_id, e.name, CASE e.n WHEN 1 THEN m.started_at ELSE {self.now} END AS at, m.attempt,"
            f" {OF_JOB.format('m', 'CASE e.n WHEN 2 THEN m.shown END')} FROM moved AS m"
            f" CROSS JOIN (VALUES (1, '{names.STARTED}'), (2, '{names.PROGRESS}')) AS e(n, name)"
            " WHERE m.id IN (SELECT id FROM mine WHERE fresh) AND e.n = 1 OR m.id IN (SELECT id FROM mine WHERE shown) AND e.n = 2"
        )
        sql = (
            f"WITH mine AS MATERIALIZED ({self.mine(rows, shown)}), moved AS ({self.updating('j')}{self._began(rows.began_ago)},"
            f" progress = coalesce({rows.progress}, j.progress), message = coalesce({rows.message}, j.message),"
            f" metadata = coalesce({rows.metadata}::jsonb, j.metadata)"
            f" FROM {rows.source} WHERE j.id = o.job_id AND j.lease_token = o.token AND j.id = ANY(ARRAY(SELECT id FROM mine))"
            f" RETURNING {BEGUN}, jsonb_build_object('progress', j.progress, 'message', j.message) AS shown)"
            f"{self.recording(happened)} {self.answer('id', 'lease_token')}"
        )
        with self.hot():
            return [Lease(*row) for row in self.heard_of(self.rows(sql, rows.params), 2)]

    # Made

    def insert(self, columns: dict[str, Any], *, ignore_conflicts: bool) -> tuple[Any, ...] | None:
        """Insert one job; return (id, created_at), or None if an unfinished job has its unique key."""
        rows = self.heard_of(self.rows(self.making(columns, ignore_conflicts), [*columns.values()]), 2)
        return (rows[0][0], self.moment(rows[0][1])) if rows else None

    @property
    def can_insert_alone(self) -> bool:
        """Whether `insert_alone` works now, that is, if no transaction is open on this thread's connection."""
        return autocommit_insert.can_be_sent(self.connection)

    def insert_alone(self, columns: dict[str, Any], note: tuple[str, str] | None) -> tuple[Any, ...] | None:
        """Insert one job as `insert` does and commit it; notify the listeners of a channel in the same message.

        The job is made even if the notification fails.
        """
        made = autocommit_insert.rows(self.connection, self.making(columns, ignore_conflicts=False), [*columns.values()], note)
        [(job_id, created_at)] = self.heard_of(made, 2)
        return job_id, self.moment(created_at)

    def making(self, columns: dict[str, Any], ignore_conflicts: bool) -> str:
        """Return the statement of `insert`. The server plans it again for each job, so it has no more parts than it needs."""
        inserting = self.inserting(columns, ignore_conflicts)
        if signals.listened_to(signals.job_event):
            happened = f"SELECT j.id AS job_id, {MADE}, {OF_JOB.format('j', 'NULL::jsonb')} FROM moved AS j"
            made = f"{inserting} RETURNING id, created_at, tenant, target, queue, task, status, webhook_url"
            return f"WITH moved AS ({made}){self.recording(happened, sendable=False)} {self.answer('id', 'created_at')}"
        if conf.current().event_log == "none":
            return f"{inserting} RETURNING id, created_at"
        return (
            f"WITH j AS ({inserting} RETURNING id, created_at, tenant, target)"
            f" INSERT INTO {EVENTS} ({LOGGED}) SELECT j.id, {MADE}, j.tenant, j.target, NULL FROM j RETURNING job_id, at"
        )

    def insert_many(self, columns: dict[str, Any], calls: Sequence[tuple[str, str, str, str]]) -> tuple[list[int], Any]:
        """Insert one job for each call by COPY, with ids taken from the sequence first; return the ids, in order, and `created_at`."""
        same = {name: value for name, value in columns.items() if name not in ("args", "kwargs", "target")}
        ahead = same.pop("run_in", None)
        texts, created_at, run_at = self._take_ids(len(calls), ahead)
        ids = [*map(int, texts)]
        same.update({"created_at": created_at, **({"run_at": run_at} if ahead is not None else {})})
        if (expires_in := same.pop("expires_in", None)) is not None:
            same["expires_at"] = created_at + expires_in
        tail = "".join(f"\t{cell(value)}" for value in same.values()) + "\n"
        command = f"COPY {self.table} (id, args, kwargs, target, {', '.join(same)}) FROM STDIN"
        with self.connection.cursor() as cursor, cursor.copy(command) as copy_in:
            for first in range(0, len(calls), COPY_BLOCK):
                pairs = zip(texts[first : first + COPY_BLOCK], calls[first : first + COPY_BLOCK], strict=True)
                lines = [
                    f"{job_id}\t{cell(args)}\t{kwargs if kwargs == '{}' else cell(kwargs)}\t{target and cell(target)}{tail}"
                    for job_id, (args, kwargs, _, target) in pairs
                ]
                copy_in.write("".join(lines))
        self._tell_made(ids, [target for _, _, _, target in calls], same)
        return ids, created_at

    def _take_ids(self, number: int, ahead: Any) -> tuple[list[str], Any, Any]:
        """Take `number` ids from the sequence, in order, as texts; return them with the time now and the time `ahead` of it.

        The ids come in one row, because many rows take the driver longer. A select of its own finds the sequence:
        otherwise the server would find it again for each id, which takes several times as long as the id.
        """
        sequence = f"(SELECT pg_get_serial_sequence('{self.table}', 'id')::regclass)"
        ids = f"array_to_string(ARRAY(SELECT nextval({sequence}) FROM generate_series(1, %s)), ',')"
        [(texts, now, then)] = self.rows(f"SELECT {ids}, {self.now}, {self.now} + %s::interval", [number, ahead])
        return texts.split(","), self.moment(now), self.moment(then)

    def _tell_made(self, ids: Sequence[int], targets: Sequence[str], same: dict[str, Any]) -> None:
        """Write the `enqueued` events of new jobs that have all but the target in common."""
        one = len(set(targets)) == 1  # an array of texts takes the driver longer than all the rest
        happened = (
            f"SELECT o.id AS job_id, '{names.ENQUEUED}' AS name, %(at)s::timestamptz AS at, 0 AS attempt, %(tenant)s::text AS tenant,"
            f" {'%(targets)s::text AS ' if one else 'o.'}target, NULL::jsonb AS data, %(queue)s::text AS queue,"
            " %(task)s::text AS task, %(status)s::text AS status, %(url)s::text AS url"
            f" FROM unnest(%(ids)s::bigint[]{'' if one else ', %(targets)s::text[]'}) AS o(id{'' if one else ', target'})"
        )
        params = {
            "at": same["created_at"],
            "tenant": same.get("tenant", ""),
            "queue": same["queue"],
            "task": same["task"],
            "status": same.get("status", "QUEUED"),
            "url": same.get("webhook_url", ""),
        }
        lists = {"ids": f"{{{','.join(map(str, ids))}}}", "targets": targets[0] if one else list(targets)}
        sql = f"WITH nothing AS (SELECT 1){self.recording(happened, sendable=False)} SELECT 1"
        if conf.current().event_log != "none":
            self.rows(sql, {**params, **lists})
        if signals.listened_to(signals.job_event):
            told = (params["queue"], params["task"], params["status"], params["url"])
            pairs = zip(ids, targets, strict=True)
            self.announce([Event(pk, names.ENQUEUED, params["at"], 0, params["tenant"], target, None, *told) for pk, target in pairs])
