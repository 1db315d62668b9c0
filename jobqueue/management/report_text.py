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


def lines(told: dict[str, Any], why: str = "") -> list[str]:
    """Return a report as lines; `why` is a text about what the job waits for, or ""."""
    found = [f"Job {told['id']}  {told['task']}"]
    facts = [(name, _plain(text)) for name, text in _facts(told, why) if text]
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        found += _indented(f"  {name.ljust(width)}  ", text)
    runs = told["runs"]
    if runs:
        found += ["", "Runs that did not succeed"]
        for run in runs:
            found += _run(run)
    return found


def seconds(value: float) -> str:
    """Return a duration as text: "0.21 s", "12.0 s", "2 min 05 s", "3 h 20 min"."""
    if value < 60:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    whole = int(value)
    return f"{whole // 60} min {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02} min"


def attempts(told: dict[str, Any]) -> str:
    """Return the numbers of runs, failures and crashes of a job in words."""
    count = told["attempts"]
    if not count["runs"]:
        return "none started"
    failed = f"; {count['failures']} of at most {count['max_attempts']} failed" if count["failures"] else ""
    lost = f"; {count['crashes']} lost with a worker" if count["crashes"] else ""
    return f"{plural(count['runs'], 'run')} started{failed}{lost}"


def ran(told: dict[str, Any]) -> str:
    """Return the duration of the last run in words, with that of all runs if there were several."""
    last, in_all = told["ran_seconds"], told["ran_seconds_in_all"]
    if last is None:
        return f"{seconds(in_all)} in all" if in_all else ""
    return f"{seconds(last)}{f' ({seconds(in_all)} in all)' if in_all > last else ''}"


def _facts(told: dict[str, Any], why: str) -> Iterator[tuple[str, str]]:
    waiting = f" for {told['waiting_for']}" if told["waiting_for"] else ""
    stopping = f", asked to stop, to be {told['cancel_requested']}" if told["cancel_requested"] else ""
    yield "state", f"{told['status']}{waiting}{stopping}"
    yield "waits because", why
    yield "message", told["outcome"]["message"]
    yield "result", _json(told["outcome"]["result"])
    yield "attempts", attempts(told)
    yield "waited", waits.in_words(told["waits"], seconds)
    yield "claimable for", "" if told["waited_seconds"] is None else seconds(told["waited_seconds"])
    yield "ran", ran(told)
    yield "progress", f"{told['progress']} %" if told["progress"] else ""
    yield "phase", told["phase"]
    for name in ("created_at", "run_at", "expires_at", "first_started_at", "started_at", "finished_at"):
        yield name.removesuffix("_at").replace("_", " "), told["times"][name] or ""
    yield "queue", f"{told['queue']}, priority {told['priority']}"
    for name in ("tenant", "target", "unique_key"):
        yield name.replace("_", " "), told[name]
    yield "arguments", _call(told["arguments"])
    yield "metadata", _json(told["metadata"] or None)


def _call(arguments: dict[str, Any]) -> str:
    named = [f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in arguments["kwargs"].items()]
    return ", ".join([*(json.dumps(value, ensure_ascii=False, default=str) for value in arguments["args"]), *named])


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
