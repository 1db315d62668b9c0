"""The library's background jobs.

Most tasks have the argument `pause`: the seconds for which they only wait, so that a user can watch them run. All
tasks are idempotent: several runs leave the same rows and files.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Count, Sum

from demo_project.library import catalogue, extract, report, shelf
from demo_project.library.models import Definition, Module, Package
from jobqueue import TaskContext, exponential, phase, pipeline, task

SAMPLES = Path(__file__).parent / "samples"
REPORTED = 12  # packages in the picture


def once_per(kind: str) -> Callable[..., str]:
    """Return a unique key of `kind` and a task's first argument, so that an unfinished job is not enqueued again."""

    def key(name: str, *_args: object, **_options: object) -> str:
        return f"{kind}:{name}"

    return key


@task(queue_name="index", unique_key=once_per("index"), takes_context=True)
def index_module(context: TaskContext, name: str, pause: float = 0.0) -> int:
    """Index one module of the standard library and return how many definitions it has."""
    source = catalogue.find(name)
    context.progress(20, "reading")
    context.wait(pause)
    return shelf.store_module(source)


@task(queue_name="covers", priority=5, unique_key=once_per("cover"), takes_context=True)
def make_cover(context: TaskContext, package: str, pause: float = 0.0) -> str:
    """Draw the cover of a package and return the name of its file."""
    context.progress(30, "drawing")
    context.wait(pause)
    return shelf.draw_cover(package)


@task(queue_name="reports", unique_key=once_per("measure"), takes_context=True, timeout=300)
def measure_package(context: TaskContext, package: str, pause: float = 0.0) -> float:
    """Measure the branches of a package's functions; this keeps a processor busy, for at most five minutes."""
    context.progress(10, "parsing")
    context.wait(pause)
    return shelf.measure_package(package, catalogue.packages()[package])


@task(queue_name="reports", unique_key=once_per("links"), takes_context=True)
async def check_links(context: TaskContext, package: str, pause: float = 0.0) -> int:
    """Count the different URLs in a package's docstrings, without a thread."""
    await asyncio.sleep(pause)
    found: set[str] = set()
    async for text in Definition.objects.filter(module__package__name=package).values_list("docstring", flat=True).aiterator():
        found |= extract.urls(text)
    async for text in Module.objects.filter(package__name=package).values_list("docstring", flat=True).aiterator():
        found |= extract.urls(text)
    await Package.objects.aupdate_or_create(name=package, defaults={"link_count": len(found)})
    return len(found)


@task(
    queue_name="index",
    max_attempts=4,
    backoff=exponential(base=2, cap=5),
    retry_on=(OSError,),
    unique_key=once_per("refresh"),
    takes_context=True,
)
def flaky_refresh(context: TaskContext, package: str, pause: float = 0.0) -> str:
    """Refresh a package's summary from a mirror that responds only at the second or third attempt."""
    context.wait(pause)
    needed = 2 + crc32(package.encode()) % 2
    if context.attempt < needed:
        raise ConnectionResetError(f"mirror closed the connection while sending {package!r} (try {context.attempt} of {needed})")
    return shelf.refresh_summary(package)


@task(queue_name="index", unique_key=once_per("parse"), takes_context=True)
def broken_parser(context: TaskContext, sample: str, pause: float = 0.0) -> int:
    """Parse a sample in the syntax of Python 2; this job always ends in ERROR, on purpose."""
    context.progress(10, "parsing")
    context.wait(pause)
    return len(extract.extract((SAMPLES / sample).read_bytes(), sample).definitions)


@task(queue_name="mail", priority=-5, unique_key=once_per("digest"), takes_context=True)
def mail_digest(context: TaskContext, reader: str, packages: list[str], pause: float = 0.0) -> int:
    """Mail a reader the numbers of some packages; the fixed Message-ID allows a mailbox to drop a second copy."""
    context.wait(pause)
    rows = Package.objects.filter(name__in=packages).annotate(files=Count("modules"), lines=Sum("modules__line_count")).order_by("name")
    lines = [f"{row.name:<20} {row.files:>5} modules {row.lines or 0:>8,} lines" for row in rows]
    body = "\n".join([f"Dear {reader.partition('@')[0]},", "", "in the library today:", "", *lines, ""])
    message_id = f"<digest-{context.job_id}@library.example.org>"
    message = EmailMessage(f"The library: {len(lines)} packages", body, to=[reader], headers={"Message-ID": message_id})
    return message.send()


@task(queue_name="reports", priority=20, unique_key="rebuild_search", takes_context=True)
def rebuild_search(context: TaskContext, seconds: float = 30.0) -> int:
    """Count the words of all docstrings for the search page: a long job with progress, to be canceled by hand."""
    names, uses = list(catalogue.packages()), Counter[str]()
    for done, counter in enumerate(shelf.count_words(names), 1):
        uses.update(counter)
        context.progress(100 * done / len(names), f"{done} of {len(names)} packages")
        context.wait(seconds / len(names))
    return shelf.store_words(uses)


@task(queue_name="reports", priority=20, unique_key="export_archive", takes_context=True)
def export_archive(context: TaskContext, seconds: float = 60.0) -> str:
    """Export all modules as JSON lines; the demo cancels this job, which leaves no partial file."""
    names, lines = list(catalogue.packages()), []
    for done, name in enumerate(names, 1):
        modules = Module.objects.filter(package__name=name).annotate(size=Count("definitions"))
        lines += [json.dumps({"module": module.name, "definitions": module.size}) for module in modules]
        context.progress(100 * done / len(names), f"exported {name}")
        context.wait(seconds / len(names))
    shelf.write_file(Path(settings.MEDIA_ROOT) / "exports" / "modules.jsonl", "\n".join(lines).encode())
    return "exports/modules.jsonl"


def collect(context: TaskContext, pause: float = 0.0) -> dict[str, int]:
    """Count the definitions of each package."""
    names, found = list(catalogue.packages()), {}
    for done, name in enumerate(names, 1):
        found[name] = Definition.objects.filter(module__package__name=name).count()
        context.progress(100 * done / len(names), f"{name}: {found[name]} definitions")
        context.wait(pause / len(names))
    return found


def draw(context: TaskContext, pause: float = 0.0) -> str:
    """Draw the largest packages as bars; with the checkpoint, a second run continues at the bar at which the first one ended."""
    largest = Counter(context.phase_result("collect")).most_common(REPORTED)
    bars: list[str] = context.checkpoint_data or []
    for name, count in largest[len(bars) :]:
        bars.append(report.bar(len(bars), name, count, largest[0][1]))
        context.checkpoint(bars)
        context.progress(100 * len(bars) / len(largest), f"{name} is drawn")
        context.wait(pause / len(largest))
    return shelf.write_media("reports/library.svg", report.chart(bars))


def write_up(context: TaskContext, pause: float = 0.0) -> str:
    """Write the page with the picture."""
    context.progress(50, "writing")
    context.wait(pause)
    return shelf.write_media("reports/library.html", report.page(context.phase_results()["collect"], "library.svg"))


@pipeline(phases=[collect, draw, phase("write the page")(write_up)], queue_name="reports", priority=15, unique_key="publish_report")
def publish_report(context: TaskContext, pause: float = 0.0) -> None:
    """Count the definitions, draw a picture, and write a page about them; each step is slow enough to watch."""
