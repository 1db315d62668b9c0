"""The subcommands ``retry``, ``cancel-all`` and the like, which change all jobs that a search finds, and ``bulk``, which shows them."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from jobqueue.access import audit
from jobqueue.bulk import actions
from jobqueue.core.amounts import bounded, plural
from jobqueue.core.masking import mask_text
from jobqueue.core.search import FIELDS, part_of
from jobqueue.insight.search import MAX_COUNTED, parsed
from jobqueue.management import tables

# For each subcommand the verb, and the status that it means if the search names none.
COMMANDS = {
    "retry": ("resume", "ERROR"),
    "resume-all": ("resume", "PAUSED"),
    "cancel-all": ("cancel", ""),
    "pause-all": ("pause", ""),
    "delete-all": ("delete", ""),
}
MAX_SHOWN = 20
COLUMNS = ("action", "state", "verb", "done", "refused", "requested (UTC)", "by", "search")
Answer = tuple[Any, list[str], bool]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the search, an option for each of its fields, and ``--dry-run``."""
    parser.add_argument("query", nargs="*", metavar="QUERY", help="what to search for, such as: order_id=7 since:2h")
    for name in FIELDS:
        parser.add_argument(f"--{name}", metavar=name.upper(), help=f"the same as {name}:{name.upper()} in QUERY")
    parser.add_argument("--dry-run", action="store_true", help="only count the jobs")


def add_bulk_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``bulk``."""
    parser.add_argument("action", nargs="?", metavar="ACTION_ID", help="the number of a bulk action; without it: the newest")
    parser.add_argument("--stop", action="store_true", help="stop it after its present batch")


def change_all(options: dict[str, Any]) -> Answer:
    """Request a bulk action, or only count what it would change."""
    what, dry_run = options["what"], options["dry_run"]
    verb, status = COMMANDS[what]
    query = _query(options)
    if status and query and "status" not in parsed(query).texts:
        query = f"{query} status:{status}"
    found = actions.preview(verb, query)
    counts = [f"  {name}: {', '.join(f'{key} {number:,}' for key, number in kinds.items())}" for name, kinds in _kinds(found)]
    scope = [f"Counted: {found.scope}"] if found.scope else []
    data: dict[str, Any] = {"preview": asdict(found), "action": None}
    done = actions.VERBS[verb].done
    if dry_run:
        return data, [f"{plural(found.number, 'job', more=found.more)} would be {done}.", *counts, *scope], True
    actor, host = audit.operator()
    action = actions.create(verb, query, actor=actor, source="command", address=host, counted=found.number)
    line = f"Bulk action {action.pk}: {plural(found.number, 'job', more=found.more)} will be {done}, by a worker."
    follow = f"'jobqueue bulk {action.pk}' shows its progress, with --stop it ends."
    return {**data, "action": actions.as_json(action)}, [line, *counts, *scope, follow], True


def bulk(options: dict[str, Any]) -> Answer:
    """Show the newest bulk actions, or one of them, or stop it; the last value returned is False if it failed or had ended."""
    given, found = options["action"], actions.rows().order_by("-pk")
    if given is None:
        shown = list(found[:MAX_SHOWN])
        return [actions.as_json(one) for one in shown], ["Bulk actions", *tables.table(COLUMNS, [_cells(one) for one in shown])], True
    action = found.filter(pk=int(given)).first() if given.isascii() and given.isdigit() and len(given) < 19 else None
    if action is None:
        raise CommandError(f"ACTION_ID is {given[:80]!r}; there is no such bulk action. 'jobqueue bulk' shows the numbers.")
    actor, host = audit.operator()
    fine = actions.stop(action, actor=actor, address=host) if options["stop"] else action.state != action.State.FAILED
    reasons = [f"  {reason}: {number:,}" for reason, number in action.refusals.items()]
    lines = [*tables.table(COLUMNS, [_cells(action)]), *([f"Refused:\n{chr(10).join(reasons)}"] if reasons else [])]
    return actions.as_json(action), [*lines, *([mask_text(action.message)] if action.message else [])], fine


def _query(options: dict[str, Any]) -> str:
    return " ".join([*options["query"], *(part_of(name, options[name]) for name in FIELDS if options[name] is not None)])


def _kinds(found: actions.Preview) -> list[tuple[str, dict[str, int]]]:
    kinds = (("status", found.by_status), ("queue", found.by_queue), ("task", found.by_task), ("kind", found.by_kind))
    return [(name, {mask_text(key): number for key, number in counts.items()}) for name, counts in kinds if counts]


def _cells(action: Any) -> tuple[str, ...]:
    state = "stopping" if action.stop and action.state == action.State.OPEN else action.state.lower()
    numbers = (f"{action.done:,} of {bounded(action.counted, action.counted >= MAX_COUNTED)}", f"{action.refused:,}")
    return (str(action.pk), state, action.verb, *numbers, tables.brief(action.created_at), action.actor, mask_text(action.query))
