"""Write what runs have logged: of running ones with each heartbeat, of ended ones before their outcome.

An error here delays neither an outcome nor a heartbeat: lines that the database refuses are dropped. An outage of the database is raised,
since the caller's own statements fail in the same way.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence

from jobqueue import db
from jobqueue.core import repeats, texts
from jobqueue.db import job_log
from jobqueue.db.job_log import Dropped, LogLines
from jobqueue.models import Job
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.run_log import Taken

logger = logging.getLogger("jobqueue")
_quoted = json.encoder.encode_basestring


def write(runs: Iterable[Run]) -> None:
    """Write the new lines of runs; raise only if the database cannot be reached."""
    if logged := [(run, run.log) for run in runs if run.log is not None and run.log.is_new]:
        taken = [(run, log.take()) for run, log in logged]
        try:
            _store(taken)
        except Exception:
            for (_, log), (_, new) in zip(logged, taken, strict=True):
                log.put_back(new)
            raise


def _store(taken: Sequence[tuple[Run, Taken]]) -> None:
    database, now = Job.objects.database, time.monotonic()
    try:
        rows = [_row(run, new, now) for run, new in taken if new.lines]
        dropped = [Dropped(run.job.id, run.job.attempt, new.kept_from) for run, new in taken if new.kept_from]
        with database.savepoint_if_in_transaction():
            job_log.write(database, rows, dropped)
    except Exception as error:
        if db.is_outage(error):
            raise
        if len(taken) > 1 and not db.was_given_up(error):  # one bad line must not affect other runs
            for one in taken:
                _store([one])
            return
        repeats.log(logging.WARNING, "What %d runs have logged could not be stored, and is dropped: %s", len(taken), error)


def _row(run: Run, new: Taken, now: float) -> LogLines:
    began, job = new.lines[0][0], run.job
    shown = _storable(run, [line[3] for line in new.lines])
    # As text, since the encoder of `json` takes half of the time of the log of a short run for the lists alone.
    lines = [
        f"[{int((at - began) * 1000)}, {level}, {_quoted(logger)}, {_quoted(text)}]"
        for (at, level, logger, _), text in zip(new.lines, shown, strict=True)
    ]
    level, last = max([line[1] for line in new.lines]), new.first + len(lines) - 1
    return LogLines(job.id, job.attempt, now - began, new.first, last, level, texts.clean(f"[{', '.join(lines)}]"))


def _storable(run: Run, lines: list[str]) -> list[str]:
    """Return lines with their secrets hidden, and without characters that cannot be stored. Most have neither: search them together."""
    text = "\n".join(lines)
    if texts.clean(text) == text and run.mask(text) == text:
        return lines
    return [run.mask(texts.clean(line)) for line in lines]
