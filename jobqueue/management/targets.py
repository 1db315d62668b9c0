"""The subcommands ``targets`` and ``clear-target`` of ``manage.py jobqueue``."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from jobqueue.core.amounts import bounded
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import safe_repr
from jobqueue.insight.targets import MAX_TARGETS, TargetSummary, target_summaries
from jobqueue.lifecycle import control
from jobqueue.management import job_verbs, tables

COLUMNS = ("target", "tenant", "held by", "state", "since (UTC)", "task", "waiting", "oldest (UTC)")
SHOWN = 100


def add_targets_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``targets``."""
    parser.add_argument("search", nargs="?", default="", metavar="TEXT", help="a part of the name of the targets to show")
    parser.add_argument("--tenant", metavar="TENANT", help="show the targets of this tenant only; '' for those without one")
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"the maximum number to show ({SHOWN}; at most {MAX_TARGETS - 1})"
    )


def add_target(parser: ArgumentParser) -> None:
    """Add the name of a target and its tenant."""
    parser.add_argument("target", metavar="TARGET", help="the full name of the target")
    parser.add_argument("--tenant", default="", metavar="TENANT", help="the tenant of the target")


def show_targets(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Show the targets that a job holds, blocks or waits for. Those that wait for an operator come first."""
    limit = options["limit"]
    if not 0 < limit < MAX_TARGETS:
        raise CommandError(f"--limit is {limit}; it must be from 1 to {MAX_TARGETS - 1}.")
    found = target_summaries(search=options["search"], tenant=options["tenant"], limit=limit + 1)
    shown = found[:limit]
    lines = ["Targets", *tables.table(COLUMNS, [_cells(one) for one in shown])]
    if len(found) > limit:
        lines.append(f"There are more than {limit}. Give a part of a name, or a higher --limit.")
    return {"targets": [_as_json(one) for one in shown], "more": len(found) > limit}, lines, True


def clear(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Cancel the jobs that hold or block a target."""
    target, tenant = options["target"], options["tenant"]
    answers = control.clear_target(target, tenant=tenant)
    name = safe_repr(mask_text(target)[:200])
    lines = [job_verbs.sentence(answer, "canceled") for answer in answers] or [f"No job holds or blocks target {name} now."]
    return [job_verbs.as_json(answer) for answer in answers], lines, all(answers)


def _as_json(one: TargetSummary) -> dict[str, Any]:
    hidden = {"target": mask_text(one.target), "tenant": mask_text(one.tenant)}
    times = {name: tables.iso(getattr(one, name)) for name in ("since", "oldest_waiting_at")}
    return {**asdict(one), **hidden, **times, "stuck": one.stuck}


def _cells(one: TargetSummary) -> tuple[str, ...]:
    holder = (str(one.holder_id), one.holder_status, tables.brief(one.since), one.holder_task) if one.holder_id else ("-", "-", "-", "-")
    oldest = tables.brief(one.oldest_waiting_at)
    return (mask_text(one.target), mask_text(one.tenant) or "-", *holder, bounded(one.waiting, one.waiting_is_capped), oldest)
