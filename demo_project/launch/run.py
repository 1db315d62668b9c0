"""One run of the demo, from the empty database to the summary."""

from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from django.conf import settings
from rich.console import Console

from demo_project.launch import batch, prepare, trouble, watch
from demo_project.launch.display import Display, banner, summary
from demo_project.launch.enqueue import enqueue
from demo_project.launch.site import Site
from demo_project.launch.stop import Stop, Stopped
from demo_project.launch.workers import Workers
from demo_project.library import catalogue
from jobqueue import request_job_cancel, set_queue_webhook
from jobqueue.models import Job

LOOK_SECONDS = 0.5
STALL_SECONDS = 120  # without any change, in a run that no user watches
CANCEL_AT = 15  # percent of export_archive
ON_PURPOSE: dict[tuple[str, str], str] = {
    ("broken_parser", Job.Status.ERROR): "One ERROR is on purpose (the job parses Python 2); its page in the admin shows the traceback",
    ("export_archive", Job.Status.CANCELED): "One job was canceled by the demo while it ran",
}


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    once: bool
    port: int
    jobs: int | None
    serve: bool


class Stalled(Exception):
    """The error for a batch in which no job moves any more."""


class Demo:
    """One run of the demo; `end` cleans up after any part of it."""

    def __init__(self, options: Options, stop: Stop, console: Console) -> None:
        """Store the options; start nothing."""
        self.options, self.stop, self.console = options, stop, console
        self.stays = console.is_terminal and options.serve and not options.once
        self._site: Site | None = None
        self._workers: Workers | None = None

    def run(self) -> int:
        """Run the batch, show it, print its summary, and serve the site in a terminal; return the exit status."""
        self._say("Preparing the database ...")
        if prepare.migrate():
            self._say("The database had an older schema. It was recreated, without the jobs of earlier runs.")
        password = prepare.admin_password(settings.DATA / "admin-password")
        self.stop.check()
        ids = self._enqueue()
        self.stop.check()
        log = settings.DATA / "workers.log"
        self._site = Site(self.options.port) if self.options.serve else None
        # The URL of an earlier run may be another one, or no longer served.
        set_queue_webhook("reports", f"{self._site.url}webhooks/receive/" if self._site else None, [])
        if self.stays and self._site:
            trouble.seed(self._site.url)
        welcome = banner(self._site.url if self._site else None, prepare.USER, password, str(log))
        self.console.print(welcome)
        with self.stop.whole():
            self._workers = Workers(log, self.stop)
        self._watch(ids, self._workers)
        status = self._sum_up(ids)
        if self.stays:
            self.console.print(welcome)
            self._stay(self._workers)
        return status

    def end(self) -> None:
        """Stop the workers and the site."""
        self.stop.keep_whole()
        if self._workers:
            self._workers.end()
        if self._site:
            self._site.end()

    def _enqueue(self) -> list[int]:
        shelves = {name: [source.name for source in sources] for name, sources in catalogue.packages().items()}
        groups = batch.compose(shelves, self.options.jobs or batch.full_size(shelves))
        ids, left = enqueue(groups)
        self._say(
            f"Enqueued {len(ids) - left} jobs of {len(batch.kinds(groups))} kinds"
            + (f"; {left} of an earlier run continue." if left else ".")
        )
        return ids

    def _watch(self, ids: list[int], workers: Workers) -> None:
        """Show the batch until none of its jobs is open."""
        moved, before = monotonic(), None
        with Display(self.console) as display:
            while True:
                if notice := workers.check():
                    self.console.print(notice, style="yellow", highlight=False)
                snapshot = watch.look(ids)
                display.update(snapshot)
                if not snapshot.all.open:
                    break
                self._cancel_the_export(snapshot)
                if snapshot.mark != before:
                    moved, before = monotonic(), snapshot.mark
                elif not self.stays and monotonic() - moved > STALL_SECONDS:
                    raise Stalled(f"No job has moved for {STALL_SECONDS} s; the end of {workers.log}:\n{workers.tail()}")
                self.stop.wait(LOOK_SECONDS)
        self._say(f"The batch took {display.elapsed:.0f} s.")

    def _cancel_the_export(self, snapshot: watch.Snapshot) -> None:
        for job in snapshot.running:
            if job.kind == "export_archive" and job.progress >= CANCEL_AT:
                request_job_cancel(job.job_id, outcome=Job.Status.CANCELED)

    def _sum_up(self, ids: list[int]) -> int:
        """Print the summary and return 0, or 1 if a job ended in another way than intended."""
        jobs = watch.ended(ids)
        self.console.print(summary(jobs))
        for job in jobs:
            if told := ON_PURPOSE.get((job.kind, job.status)):
                page = f"{self._site.url}admin/jobqueue/job/{job.job_id}/change/" if self._site and self.stays else f"job {job.job_id}"
                self._say(f"{told}: {page}")
        unexpected = [job for job in jobs if job.unexpected]
        for job in unexpected:
            self.console.print(f"Not meant to happen: job {job.job_id}, {job.kind}, ended as {job.status}.", style="bold red")
        return 1 if unexpected else 0

    def _stay(self, workers: Workers) -> None:
        """Serve the site, and run workers for jobs that are enqueued or resumed, until a request to stop."""
        self._say("The site and the workers run until Ctrl-C.")
        with suppress(Stopped):
            while True:
                self.stop.wait(1)
                if notice := workers.check():
                    self.console.print(notice, style="yellow", highlight=False)

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)
