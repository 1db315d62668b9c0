"""The display of the batch: live in a terminal, otherwise one line every few seconds."""

from collections import deque
from collections.abc import Iterable
from time import monotonic
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo_project.launch.watch import Ended, Kind, Running, Snapshot, Status

LINE_SECONDS = 5  # between two lines without a terminal
WINDOW_SECONDS = 5  # the span over which the rate is computed
WIDE = 150  # the number of columns from which the two tables are shown side by side
FRAME_LINES = 5  # of a table: its head, its rules, the lines above it
COLUMNS = (
    ("waiting", "waiting", "white"),
    ("retrying", "retry", "yellow"),
    ("running", "running", "cyan"),
    ("done", "done", "green"),
    ("failed", "error", "red"),
    ("canceled", "canceled", "magenta"),
    ("paused", "paused", "blue"),
)


class Display:
    """The display of the batch's progress."""

    def __init__(self, console: Console) -> None:
        """Start the clock."""
        self.console = console
        self._began = monotonic()
        self._looks: deque[tuple[float, int]] = deque()
        self._last_line = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        """Start the live display."""
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the terminal."""
        if self._live:
            self._live.stop()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return monotonic() - self._began

    def update(self, snapshot: Snapshot) -> None:
        """Show a new snapshot of the batch."""
        rate = self._rate(snapshot.all)
        if self._live:
            self._live.update(self.picture(snapshot, rate), refresh=True)
        elif self.elapsed - self._last_line >= LINE_SECONDS or not self._last_line:
            self._last_line = self.elapsed
            self.console.print(_line(snapshot.all, self.elapsed, rate), highlight=False, soft_wrap=True)

    def _rate(self, total: Kind) -> float:
        """Return how many jobs ended per second recently."""
        now = monotonic()
        self._looks.append((now, total.total - total.open))
        while now - self._looks[0][0] > WINDOW_SECONDS:
            self._looks.popleft()
        (first, before), (last, after) = self._looks[0], self._looks[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def picture(self, snapshot: Snapshot, rate: float) -> RenderableType:
        """Return the terminal's picture of a snapshot."""
        total = snapshot.all
        head = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=max(total.total, 1), completed=total.total - total.open, width=40)
        head.add_row(bar, f"[bold]{total.total - total.open}[/] of {total.total} jobs", f"{rate:.1f} jobs/s", f"{self.elapsed:.0f} s")
        kinds, wide = kinds_table(snapshot), self.console.width >= WIDE
        room = self.console.height - FRAME_LINES - (0 if wide else kinds.row_count + FRAME_LINES)
        running = running_table(snapshot.running[: max(room, 1)])
        if not wide:
            return Group(head, kinds, running)
        body = Table.grid(padding=(0, 4))
        body.add_row(kinds, running)
        return Group(head, body)


def kinds_table(snapshot: Snapshot) -> Table:
    """Return a table with one row per task and one column per place."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("task")
    for _, title, colour in COLUMNS:
        table.add_column(title, justify="right", style=colour)
    for name, kind in [*snapshot.kinds.items(), ("all", snapshot.all)]:
        cells = [str(getattr(kind, place) or "·") for place, _, _ in COLUMNS]
        table.add_row(name, *cells, style="bold" if name == "all" else None)
    return table


def running_table(running: Iterable[Running]) -> Table:
    """Return a table of the running jobs."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("running now", "about", "progress", "", "s"):
        table.add_column(title, no_wrap=True, max_width=26, justify="right" if title == "s" else "left")
    for job in running:
        name = job.kind if job.attempt == 1 else f"{job.kind} (run {job.attempt})"
        bar = ProgressBar(total=100, completed=job.progress, width=12)
        table.add_row(escape(name), Text(job.about), bar, Text(job.message, style="dim"), f"{job.seconds:.0f}")
    return table


def banner(url: str | None, user: str, password: str, log: str) -> Panel:
    """Return a panel with the URLs, the user and the password."""
    rows = Table.grid(padding=(0, 2))
    if url:
        rows.add_row("library", f"[link={url}]{url}[/]")
        rows.add_row("overview", f"[bold][link={url}admin/jobqueue/]{url}admin/jobqueue/[/][/]")
        rows.add_row("webhooks", f"[link={url}webhooks/]{url}webhooks/[/]")
    rows.add_row("user", f"[bold]{user}[/]")
    rows.add_row("password", Text(password, style="bold"))
    rows.add_row("worker's log", Text(log))
    return Panel(rows, title="jobqueue demo", title_align="left", border_style="cyan", expand=False)


def summary(jobs: Iterable[Ended]) -> Table:
    """Return a table of the batch's results."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Results of the batch", title_justify="left")
    for title in ("task", "jobs", "done", "retried", "error", "canceled", "paused", "mean s"):
        table.add_column(title, justify="left" if title == "task" else "right")
    rows = list(jobs)
    for kind in [*sorted({job.kind for job in rows}), ""]:
        mine = [job for job in rows if kind in ("", job.kind)]
        times = [job.seconds for job in mine if job.seconds is not None]
        counts = [sum(job.status == status for job in mine) for status in (Status.SUCCESS, Status.ERROR, Status.CANCELED, Status.PAUSED)]
        cells = [len(mine), counts[0], sum(job.failures > 0 for job in mine if job.status == Status.SUCCESS), *counts[1:]]
        mean = f"{sum(times) / len(times):.2f}" if times else ""
        table.add_row(kind or "all", *(str(cell or "·") for cell in cells), mean, style=None if kind else "bold")
    return table


def _line(total: Kind, elapsed: float, rate: float) -> str:
    ended = total.total - total.open
    return (
        f"{elapsed:5.0f} s  {ended} of {total.total} ended  {total.running} running  {total.waiting} waiting  "
        f"{total.retrying} to be retried  {total.failed} error  {total.canceled} canceled  {rate:.1f} jobs/s"
    )
