"""The subcommand ``manage.py jobqueue health``, which lists the problems and exits with a status for the worst severity."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from jobqueue.insight.problems import Severity, Thresholds, problems
from jobqueue.insight.problems.base import MAX_SECONDS, NUMBER, OFF, SECONDS, THRESHOLDS

STATUSES = {Severity.ERROR: 1, Severity.WARNING: 3}  # 2 means an invalid command line
MAX_NUMBER = 1_000_000
EXAMPLES = {SECONDS: "For example, 600 is ten minutes.", NUMBER: "For example, 0 allows none."}


def add_arguments(parser: ArgumentParser) -> None:
    """Add an option for each threshold, and ``--fail-on``."""
    for name, threshold in THRESHOLDS.items():
        default = OFF if threshold.default is None else f"{threshold.default:g}"
        parser.add_argument(_option(name), metavar=threshold.metadata["unit"], help=f"{threshold.metadata['help']} (default: {default})")
    choices = [str(severity) for severity in Severity]
    parser.add_argument(
        "--fail-on", choices=choices, default=str(Severity.WARNING), help="the lowest severity for which the exit status is not 0"
    )


def health(options: dict[str, Any]) -> tuple[Any, list[str], int]:
    """Return the problems as JSON values and as lines, and the exit status."""
    given: dict[str, Any] = {name: _value(name, options[name]) for name in THRESHOLDS if options[name] is not None}
    current = problems(Thresholds(**given))
    lines = [f"[{problem.severity}] {problem.code}: {problem.text} {problem.fix}" for problem in current]
    counted = [Severity.ERROR] if options["fail_on"] == Severity.ERROR else [Severity.ERROR, Severity.WARNING]
    status = min((STATUSES[problem.severity] for problem in current if problem.severity in counted), default=0)
    return {"healthy": not current, "problems": [asdict(problem) for problem in current]}, lines or ["No problem was found."], status


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _value(name: str, text: str) -> float | None:
    unit = THRESHOLDS[name].metadata["unit"]
    if text == OFF and name != "since":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    most = MAX_SECONDS if unit == SECONDS else MAX_NUMBER
    if not 0 <= value <= most or (unit == NUMBER and value != int(value)):  # NaN compares false, too
        rule = f"a {'number of seconds' if unit == SECONDS else 'whole number'} from 0 to {most}"
        off = "" if name == "since" else f", or {OFF!r}"
        raise CommandError(f"{_option(name)} is {text[:80]!r}; it must be {rule}{off}. {EXAMPLES[unit]}")
    return value
