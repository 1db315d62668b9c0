"""The writing of events, by the statement that makes them happen or by the next one of its transaction.

Each such statement has a part called ``happened``, with one row for each event, and two inserts that read it. One
writes the log, unless `EVENT_LOG` is "none". The other writes the webhooks to send, for the events that the URL of a
job or its queue asks for. Python does nothing for each job of a batch. Only if a receiver of `job_event` is connected
are the rows returned, to be sent after the commit.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

from django.db import transaction

from jobqueue import conf, signals
from jobqueue.core import event_names as names
from jobqueue.core import repeats
from jobqueue.db import hygiene
from jobqueue.db.eventlog import EVENTS
from jobqueue.db.records import Event
from jobqueue.db.statements import Statements
from jobqueue.exceptions import Interrupted, TimeLimitExceeded

PATIENCE_SECONDS = 0.1
QUEUES = "jobqueue_queue"
DELIVERIES = "jobqueue_webhookdelivery"
LOGGED = "job_id, name, at, attempt, tenant, target, data"
DEFAULT = ", ".join(f"'{name}'" for name in names.SENT_BY_DEFAULT)
# A message about a message would never end, so these are not sent, whatever a queue's row asks for.
NEVER_SENT = f"'{names.WEBHOOK_DELIVERED}', '{names.WEBHOOK_FAILED}'"
# The values of an event that come from the job's row, in the order of `Event` from `attempt` on.
OF_JOB = "{0}.tenant, {0}.target, {1} AS data, {0}.queue, {0}.task, {0}.status, {0}.webhook_url AS url"


class Events(Statements):
    """The statements that write events and their webhooks."""

    message_id: ClassVar[str] = ""  # a random one
    facts: ClassVar[str] = ""  # of `happened` as h, as JSON
    asked_for: ClassVar[str] = ""  # the condition that the queue q asks for the event of h
    if_any: ClassVar[str] = ""  # a condition, evaluated without the events, that any message could be asked for

    def log_events(self) -> str:
        """Return the insert of the events of `happened` into the log."""
        return f"INSERT INTO {EVENTS} ({LOGGED}) SELECT {LOGGED} FROM happened"

    def send_events(self) -> str:
        """Return the insert of the messages that the events of `happened` ask for."""
        return (
            f"INSERT INTO {DELIVERIES} (message_id, job_id, event, queue, url, facts) SELECT {self.message_id}, h.job_id, h.name, h.queue,"
            f" CASE WHEN h.url <> '' THEN h.url ELSE q.webhook_url END, {self.facts} FROM happened AS h"
            f" LEFT JOIN {QUEUES} AS q ON q.name = h.queue"
            f" WHERE {self.if_any}(h.url <> '' OR q.webhook_url <> '') AND {self.asked_for} AND h.name NOT IN ({NEVER_SENT})"
            # The planner may join in any order, but the messages of a job must be sent in the order of its events.
            f" ORDER BY h.job_id, h.at, h.name <> '{names.STARTED}'"
        )

    def tell(self, events: Iterable[Event]) -> None:
        """Write events. The caller's transaction moved their jobs, whose rows it has locked."""
        log = conf.current().event_log
        wanted = [event for event in events if names.happens(event.name, log)]
        if not wanted:
            return
        if signals.listened_to(signals.job_event):
            now = self.moment(self.rows(f"SELECT {self.now}")[0][0])
            wanted = [event if event.at else event._replace(at=now) for event in wanted]
        self.write_events(json.dumps([{**event._asdict(), "at": self.moment_text(event.at)} for event in wanted], default=str))
        self.announce(wanted)

    def tell_of(self, ids: Sequence[int], name: str) -> None:
        """Write the same event for each of the jobs, which the caller has locked."""
        condition, params = self.among(ids)
        rows = self.rows(
            f"SELECT id, attempt, {OF_JOB.format('j', 'NULL')} FROM {self.table} AS j WHERE id {condition} ORDER BY id", params
        )
        self.tell(Event(row[0], name, None, *row[1:]) for row in rows)

    def write_events(self, events: str) -> None:
        """Write events that are given as JSON."""
        raise NotImplementedError

    def moment_text(self, at: Any) -> str | None:
        """Return a time in the form that the database reads."""
        return at.isoformat() if at else None

    def announce(self, events: Collection[Event]) -> None:
        """Send the events to the receivers of `job_event`, if there are any, when the transaction has committed."""
        if events and signals.listened_to(signals.job_event):
            transaction.on_commit(functools.partial(_send, type(self), [*events]), using=self.alias, robust=True)


def _send(sender: type, events: Sequence[Event]) -> None:
    signals.deliver(_send_one, [(sender, event) for event in events], patience=PATIENCE_SECONDS)


def _send_one(item: tuple[type, Event], _: None) -> None:
    sender, event = item
    values = {name: getattr(event, name) for name in ("name", "job_id", "at", "attempt", "tenant", "target")}
    try:
        with conf.tenant_context(event.tenant), hygiene.leaving_no_transaction("A receiver of job_event"):
            signals.job_event.send_robust(sender, **values, data=json.loads(event.data) if event.data else None)
    except (Interrupted, TimeLimitExceeded):  # raised in the thread of a task that is to stop
        raise
    except BaseException as error:  # the events have happened; an error with one must not stop the rest
        # `send_robust` does not catch SystemExit and the like, and the commit would count as failed. In the main
        # thread, the exception may be meant for the process: signal handlers raise it there.
        if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
            raise
        repeats.log(
            logging.WARNING,
            "Job %s: a receiver of the event %s failed: %s",
            event.job_id,
            event.name,
            error,
            kind=event.name,
        )
