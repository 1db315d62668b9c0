"""The composition of the batch of jobs: the same machine and the same size give the same batch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeVar

T = TypeVar("T")

SECONDS, SLOTS = 80, 8  # the duration of the full batch, with this number of slots
LONG_SECONDS, LONG_DELAY = 30, 25  # rebuild_search: the job to cancel by hand, late enough to log in first
EXPORT_SECONDS, EXPORT_DELAY = 60, 6  # export_archive: the job that the demo cancels
PAUSE = 0.7  # of all jobs but those of the modules, whose pauses fill the rest of the time
REFRESHES = 8
READERS = ("ada@example.org", "grace@example.org", "guido@example.org")
REPORT_PAUSE, REPORT_DELAY = 3.3, 20  # publish_report: of each of its three phases; the job whose progress to watch
EXTRAS = REFRESHES + len(READERS) + 4
CHORES = ("make_cover", "measure_package", "check_links")
SMALLEST = EXTRAS + len(CHORES) + 1


class WrongSize(ValueError):
    """The error for a number of jobs that a batch cannot have."""


@dataclass(frozen=True)
class Group:
    """Jobs of one task that are enqueued together: the arguments of each, and one set of options."""

    task: str
    calls: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """A job to enqueue, and its place in the order: 0 is the first, 1 the last."""

    place: float
    task: str
    arguments: tuple[Any, ...]
    pause: float = PAUSE


def full_size(shelves: Mapping[str, Sequence[str]]) -> int:
    """Return the number of jobs of a full batch: one per module, some chores per package, and the extras."""
    return sum(len(modules) for modules in shelves.values()) + len(CHORES) * len(shelves) + EXTRAS


def compose(shelves: Mapping[str, Sequence[str]], size: int) -> list[Group]:
    """Return a batch of `size` jobs for packages of modules, in the order in which they are to be enqueued."""
    most = full_size(shelves)
    if not SMALLEST <= size <= most:
        raise WrongSize(f"A batch of {size} jobs: it must have from {SMALLEST} to {most} on this machine.")
    scale = size / most
    packages = spread(list(shelves), max(1, int(len(shelves) * scale)))
    modules = spread([(shelf, module) for shelf in shelves for module in shelves[shelf]], size - EXTRAS - len(CHORES) * len(packages))
    orders = [*_modules(modules, scale, len(packages)), *_chores(packages, modules), *_extras(list(shelves))]
    return [*_long(scale), *_grouped(sorted(orders, key=lambda order: order.place))]


def kinds(groups: Iterable[Group]) -> dict[str, int]:
    """Return the number of jobs of each task."""
    found: dict[str, int] = {}
    for group in groups:
        found[group.task] = found.get(group.task, 0) + len(group.calls)
    return found


def spread(items: Sequence[T], count: int) -> list[T]:
    """Return `count` of the items (all, if there are fewer), evenly spread."""
    count = min(count, len(items))
    return [items[at * len(items) // count] for at in range(count)]


def _long(scale: float) -> list[Group]:
    """Return the long jobs and the pipeline; they start a little later than the rest."""
    calls = (
        ("rebuild_search", max(2.0, LONG_SECONDS * scale), LONG_DELAY),
        ("export_archive", max(20.0, EXPORT_SECONDS * scale), EXPORT_DELAY),  # long enough to be canceled while it runs
    )
    report = {"pause": round(max(0.2, REPORT_PAUSE * scale), 1)}
    return [
        *(
            Group(task, (((), {"seconds": round(long, 1)}),), {"run_after": timedelta(seconds=delay * scale)})
            for task, long, delay in calls
        ),
        Group("publish_report", (((), report),), {"run_after": timedelta(seconds=REPORT_DELAY * scale)}),
    ]


def _modules(modules: Sequence[tuple[str, str]], scale: float, packages: int) -> Iterator[Order]:
    """Yield the jobs of the modules; their pauses keep the slots busy for SECONDS, and differ, so that the slots are not in step."""
    others = scale * (LONG_SECONDS + EXPORT_SECONDS / 6) + PAUSE * (len(CHORES) * packages + 2.5 * REFRESHES)
    pause = min(3.0, max(0.1, (SECONDS * SLOTS * scale - others) / len(modules)))
    for at, (_, module) in enumerate(modules):
        yield Order(at / len(modules), "index_module", (module,), round(pause * (0.5 + at * 7 % 11 / 10), 2))


def _chores(packages: Sequence[str], modules: Sequence[tuple[str, str]]) -> Iterator[Order]:
    """Yield the chores of each package a little after its last module, so that they find it indexed."""
    last = {shelf: at for at, (shelf, _) in enumerate(modules)}
    for package in packages:
        for task in CHORES:
            yield Order((last.get(package, 0) + 2 * SLOTS) / len(modules), task, (package,))


def _extras(packages: Sequence[str]) -> Iterator[Order]:
    """Yield the jobs that fail, are retried or send mail, spread over the order."""
    yield Order(0.3, "broken_parser", ("legacy.txt",))
    refreshed = spread(packages, REFRESHES)
    for at, package in enumerate(refreshed):
        yield Order(at / len(refreshed), "flaky_refresh", (package,))
    for at, reader in enumerate(READERS):
        yield Order(1.0, "mail_digest", (reader, list(packages[at :: len(READERS)])))


def _grouped(orders: Iterable[Order]) -> Iterator[Group]:
    """Group neighbours of one task, to be enqueued together."""
    for task, neighbours in groupby(orders, key=lambda order: order.task):
        yield Group(task, tuple((order.arguments, {"pause": order.pause}) for order in neighbours))
