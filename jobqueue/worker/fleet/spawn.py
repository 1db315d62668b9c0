"""The start of a worker process by its parent process: with a fixed command, never with the command line of the parent.

The environment variable `VARIABLE` holds the order for the child. The child inherits the socket to the parent, and replaces the order by a
mark. All of its descendants inherit the mark. A process that has the variable starts no workers.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

VARIABLE = "JOBQUEUE_CHILD"
# Not `-m`: jobqueue may be importable only with the path of the parent, such as the folder of manage.py or a zip file.
CODE = (
    f"import json, os, sys; sys.path[:] = json.loads(os.environ['{VARIABLE}'])['path']; "
    "from jobqueue.worker.process.childmain import main; main()"
)


@dataclass(frozen=True)
class Options:
    """The options of ``runworkers`` that one worker gets."""

    overrides: dict[str, Any] = field(default_factory=dict)  # settings
    once: bool = False
    fail_on_error: bool = False
    verbosity: int = 1
    max_jobs_per_process: int | None = None
    max_rss_mb: int | None = None
    strict: bool = False


@dataclass(frozen=True)
class Order:
    """The order for a child process: everything that it needs to become a worker."""

    settings_module: str
    setup: str  # dotted path of a callable that loads the settings and the apps
    options: Options
    path: list[str] = field(default_factory=lambda: list(sys.path))
    argv: list[str] = field(default_factory=lambda: list(sys.argv))


def refusal(settings_module: str | None) -> str:
    """Return why this process cannot start worker processes; "" if it can."""
    if VARIABLE in os.environ:
        return f"--processes is refused inside a worker process and in programs that it starts ({VARIABLE} is set): leave --processes out."
    if getattr(sys, "frozen", False) or not sys.executable:
        return "--processes needs a Python interpreter, and this program has none of its own: leave --processes out."
    if not settings_module:
        return (
            "--processes needs a settings module, and the settings were made in code: set DJANGO_SETTINGS_MODULE, or leave --processes out."
        )
    return ""


def start(order: Order, number: int, descriptor: int, board: int) -> subprocess.Popen[bytes]:
    """Start worker process `number`, which inherits a socket and the file of a board; raise `OSError` if the system cannot start it."""
    text = json.dumps({"number": number, "descriptor": descriptor, "board": board, **asdict(order)})
    # The flags of this interpreter (-O, -W, -X). multiprocessing uses the same function.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return subprocess.Popen(  # noqa: S603 - a fixed command
        [sys.executable, *flags, "-c", CODE, "--child", str(number)],  # the arguments identify the worker in the list of processes
        env={**os.environ, "DJANGO_SETTINGS_MODULE": order.settings_module, VARIABLE: text},
        stdin=subprocess.DEVNULL,
        pass_fds=[descriptor, board],
        process_group=0,  # Ctrl-C in a terminal reaches only the parent, which forwards it once
    )


def receive() -> tuple[Order, int, int, int]:
    """Return the order for this child, its number, its socket and its board; raise ValueError if there is none.

    The mark for its descendants stays in the environment.
    """
    try:
        given = json.loads(os.environ[VARIABLE])
        number, descriptor, board = given.pop("number"), given.pop("descriptor"), given.pop("board")
        order = Order(**{**given, "options": Options(**given["options"])})
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise ValueError(f"{VARIABLE} holds no order of a parent process: {error}") from error
    if not is_socket:
        raise ValueError(f"Descriptor {descriptor} of {VARIABLE} is not a socket.")
    os.environ[VARIABLE] = str(number)
    return order, number, descriptor, board
