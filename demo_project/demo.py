"""Run the demo: ``python -m demo_project.demo [--once] [--port 8000] [--jobs N] [--no-serve]``.

It prepares the database and enqueues a batch of jobs that indexes Python's standard library. It runs `manage.py
runworkers` in a child process and shows the progress of the jobs. In a terminal, it then serves the site until
Ctrl-C. Without a terminal, or with ``--once``, it ends with the batch. The exit status is 0 if all jobs ended as
intended, 1 if not, and 130 if it was interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from demo_project.launch.stop import Stop, Stopped

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    stop = Stop()
    stop.listen()  # before any step that takes time
    from rich.console import Console

    options, console = _parser().parse_args(arguments), Console()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo_project.settings")
    try:
        return _run(options, stop, console)
    except (Stopped, KeyboardInterrupt):
        console.print("Interrupted.")
        return INTERRUPTED
    finally:
        stop.keep_whole()


def _run(options: argparse.Namespace, stop: Stop, console: "Console") -> int:
    if not os.environ.get("DATABASE_URL"):
        from demo_project import embedded

        console.print("Starting the embedded PostgreSQL ...")
        with stop.whole():
            embedded.start()
        stop.check()
    import django

    django.setup()
    from django.db import OperationalError

    from demo_project.launch.batch import WrongSize
    from demo_project.launch.prepare import ForeignTables
    from demo_project.launch.run import Demo, Options, Stalled
    from demo_project.launch.workers import WorkersFailed

    demo = Demo(Options(once=options.once, port=options.port, jobs=options.jobs, serve=options.serve), stop, console)
    try:
        return demo.run()
    except (OperationalError, ForeignTables, Stalled, WorkersFailed, WrongSize) as error:
        console.print(str(error), style="bold red", markup=False, highlight=False)
        return 1
    finally:
        demo.end()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo_project.demo", description="Index Python's standard library by background jobs.")
    parser.add_argument("--once", action="store_true", help="exit when the batch is done, even in a terminal")
    parser.add_argument("--port", type=int, default=8000, help="of the site; the next free one is taken (default: 8000)")
    parser.add_argument("--jobs", type=int, metavar="N", help="make a smaller batch of N jobs (default: one per module, and some more)")
    parser.add_argument("--no-serve", dest="serve", action="store_false", help="do not serve the site")
    return parser


if __name__ == "__main__":
    sys.exit(main())
