"""``manage.py enqueue_catalogue``: enqueue a mix of work with a known end, and check later whether it ended so."""

import math
import sys
from argparse import ArgumentParser
from collections import defaultdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from demo_project.workload.kinds import KINDS, catalogue
from demo_project.workload.tasks import TASKS
from demo_project.workload.verdict import verdicts
from jobqueue import enqueue_many

MOST = 1_000_000
SHOWN = 20


class Command(BaseCommand):
    """The command that enqueues jobs of the catalogue, or checks them."""

    help = "Enqueue a mix of work kinds with known ends; with --check, compare every job with its prediction."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for what is enqueued and what is done."""
        parser.add_argument("--count", type=int, default=200, help="how many jobs (default: 200)")
        parser.add_argument("--kinds", default="", help=f"names, separated by commas (default: all): {', '.join(KINDS)}")
        parser.add_argument("--seed", default="", help="a text from which the jobs are generated; the same text gives the same jobs")
        parser.add_argument("--pace", type=float, default=1.0, help="0.1: every run takes a tenth of its time (default: 1)")
        parser.add_argument("--queue", help="the queue (default: catalogue)")
        parser.add_argument("--check", action="store_true", help="enqueue nothing; exit with 1 if a job has not ended, or not as predicted")
        parser.add_argument("--list", action="store_true", help="enqueue nothing; show the kinds")

    def handle(self, *args: Any, **options: Any) -> None:
        """Enqueue jobs, check them, or list the kinds."""
        kinds = _kinds(options["kinds"])
        if options["list"]:
            self._list()
        elif options["check"]:
            self._check(kinds, options["seed"])
        else:
            if not 1 <= options["count"] <= MOST:
                raise CommandError(f"--count is {options['count']}; it must be a whole number from 1 to {MOST:,}.")
            if not (math.isfinite(options["pace"]) and 0 <= options["pace"] <= 1000):
                raise CommandError(f"--pace is {options['pace']}; it must be a number from 0 to 1000.")
            self._enqueue(options["count"], kinds, options["seed"], options["pace"], options["queue"])

    def _enqueue(self, count: int, kinds: list[str], seed: str, pace: float, queue: str | None) -> None:
        calls: dict[str, list[tuple[list[Any], dict[str, Any]]]] = defaultdict(list)
        seconds = 0.0
        for told in catalogue(count, kinds, seed, pace):
            calls[told.kind].append(([told.number, seed, pace], {}))
            seconds += told.duration_seconds * told.attempts
        for kind, given in calls.items():
            enqueue_many(TASKS[kind].using(queue_name=queue) if queue else TASKS[kind], given)
        parts = ", ".join(f"{len(calls[kind])} {kind}" for kind in KINDS if calls[kind])
        self.stdout.write(f"Enqueued {count:,} jobs of the seed {seed!r}, {seconds:,.1f} s of work: {parts}.")

    def _check(self, kinds: list[str], seed: str) -> None:
        found = list(verdicts(kinds, seed))
        waiting = [one for one in found if not one.ended]
        wrong = [one for one in found if one.differences]
        as_foretold = len(found) - len(waiting) - len(wrong)
        self.stdout.write(
            f"{len(found):,} jobs of the seed {seed!r}: {as_foretold:,} as predicted, {len(wrong):,} differently, "
            f"{len(waiting):,} not ended."
        )
        for one in wrong[:SHOWN]:
            self.stdout.write(f"  job {one.job_id} ({one.foretold.kind} {one.foretold.number}): {'; '.join(one.differences)}")
        if len(wrong) > SHOWN:
            self.stdout.write(f"  and {len(wrong) - SHOWN:,} more")
        if not found or waiting or wrong:
            self.stdout.flush()
            sys.exit(1)

    def _list(self) -> None:
        for kind in KINDS.values():
            least, most = kind.seconds
            span = f"{least:g} to {most:g} s" if most else "-"
            self.stdout.write(f"  {kind.name:<16} {kind.outcome:<9} {span:<14} {kind.text}")


def _kinds(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            raise CommandError(f"--kinds names {name[:80]!r}, which is not a kind; the kinds are {', '.join(KINDS)}.")
    return names
