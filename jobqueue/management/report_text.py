"""The report on a job as lines for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jobqueue.core.amounts import plural
from jobqueue.insight import waits

LONGEST = 2_000
# Control characters in the text of a job must not reach the terminal of the operator.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def lines(report: dict[str, Any], why: str = "") -> list[str]:
    """Return a report as lines; `why` is a text about what the job waits for, or ""."""
    output = [f"Job {report['id']}  {report['task']}"]
    facts = [(name, _plain(text)) for name, text in _facts(report, why) if text]
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        output += _indented(f"  {name.ljust(width)}  ", text)
    runs = report["runs"]
    if runs:
        output += ["", "Runs that did not succeed"]
        for run in runs:
            output += _run(run)
    return output


def seconds(value: float) -> str:
    """Return a duration as text: "0.21 s", "12.0 s", "2 min 05 s", "3 h 20 min"."""
    if value < 60:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    whole_seconds = int(value)
    return (
        f"{whole_seconds // 60} min {whole_seconds % 60:02} s"
        if whole_seconds < 3600
        else f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60:02} min"
    )


def attempts(report: dict[str, Any]) -> str:
    """Return the numbers of runs, failures and crashes of a job in words."""
    count = report["attempts"]
    if not count["runs"]:
        return "none started"
    failed = f"; {count['failures']} of at most {count['max_attempts']} failed" if count["failures"] else ""
    lost = f"; {count['crashes']} lost with a worker" if count["crashes"] else ""
    return f"{plural(count['runs'], 'run')} started{failed}{lost}"


def ran(report: dict[str, Any]) -> str:
    """Return the duration of the last run in words, with that of all runs if there were several."""
    last, in_all = report["ran_seconds"], report["ran_seconds_in_all"]
    if last is None:
        return f"{seconds(in_all)} in all" if in_all else ""
    return f"{seconds(last)}{f' ({seconds(in_all)} in all)' if in_all > last else ''}"


def _facts(report: dict[str, Any], why: str) -> Iterator[tuple[str, str]]:
    waiting = f" for {report['waiting_for']}" if report["waiting_for"] else ""
    stopping = f", asked to stop, to be {report['cancel_requested']}" if report["cancel_requested"] else ""
    yield "state", f"{report['status']}{waiting}{stopping}"
    yield "waits because", why
    yield "message", report["outcome"]["message"]
    yield "result", _json(report["outcome"]["result"])
    yield "attempts", attempts(report)
    yield "waited", waits.in_words(report["waits"], seconds)
    yield "claimable for", "" if report["waited_seconds"] is None else seconds(report["waited_seconds"])
    yield "ran", ran(report)
    yield "progress", f"{report['progress']} %" if report["progress"] else ""
    yield "phase", report["phase"]
    for name in ("created_at", "run_at", "expires_at", "first_started_at", "started_at", "finished_at"):
        yield name.removesuffix("_at").replace("_", " "), report["times"][name] or ""
    yield "queue", f"{report['queue']}, priority {report['priority']}"
    for name in ("tenant", "target", "unique_key"):
        yield name.replace("_", " "), report[name]
    yield "arguments", call(report["arguments"])
    yield "metadata", _json(report["metadata"] or None)


def call(arguments: dict[str, Any]) -> str:
    """Return arguments as the text of a call."""
    by_name = [f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in arguments["kwargs"].items()]
    return ", ".join([*(json.dumps(value, ensure_ascii=False, default=str) for value in arguments["args"]), *by_name])


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _run(run: dict[str, Any]) -> Iterator[str]:
    span = f"from {run['started_at'] or '?'} to {run['finished_at'] or '?'}"
    yield _plain(f"  run {run['attempt'] or '?'}: {run['outcome'] or 'unknown'}, {span}")
    if run["worker"]:
        release = f", release {run['release']}" if run["release"] else ""
        yield _plain(f"    on worker {run['worker']}{release}")
    if run["exception"] or run["message"]:
        yield from _indented("    ", _plain(run["message"] or run["exception"]))
    if run["abandoned"]:
        yield from _indented("    abandoned: ", _plain(run["abandoned"]))
    if run.get("traceback"):
        yield from _indented("      ", _plain(run["traceback"], len(run["traceback"])))


def _plain(text: str, longest: int = LONGEST) -> str:
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
    return shown if len(shown) <= longest else f"{shown[:longest]}… [{plural(len(shown) - longest, 'character')} more: --json]"


def _indented(head: str, text: str) -> list[str]:
    """Return the lines of a text after a head, with further lines indented to align with the first."""
    first, *others = text.split("\n")
    return [f"{head}{first}".rstrip(), *(f"{' ' * len(head)}{line}".rstrip() for line in others)]
