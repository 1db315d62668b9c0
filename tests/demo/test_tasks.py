"""The library's tasks, run by hand."""

import asyncio
import json
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.core import mail
from django.db import connections

from demo_project.library import catalogue, shelf, tasks
from demo_project.library.models import Definition, Package, Word
from jobqueue import Interrupted
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.demo.desk import Desk, context

pytestmark = pytest.mark.django_db


def test_a_module_is_indexed_after_its_pause() -> None:
    desk = Desk()
    assert tasks.index_module.func(context(desk), "json.tool", pause=0.5) == Definition.objects.count() > 0
    assert desk.waits == [0.5]


def test_a_module_that_is_interrupted_stores_nothing() -> None:
    with pytest.raises(Interrupted):
        tasks.index_module.func(context(Desk(interrupt_after=0)), "json.tool")
    assert not Definition.objects.exists()


def test_a_cover_is_drawn_and_a_package_measured(media: Path) -> None:
    assert tasks.make_cover.func(context(), "json") == "covers/json.png"
    assert (media / "covers" / "json.png").exists()
    assert tasks.measure_package.func(context(), "json") == Package.objects.get(name="json").complexity


@pytest.mark.django_db(transaction=True)
def test_links_are_counted_by_a_coroutine(tmp_path: Path) -> None:
    path = tmp_path / "links.py"
    path.write_text('"""http://a.org/"""\ndef f(): "http://a.org/ https://b.org/x."\n')
    shelf.store_module(catalogue.Source("links", "links", path))

    async def run() -> int:
        try:
            return await tasks.check_links.func(context(), "links")  # type: ignore[no-any-return]
        finally:
            await sync_to_async(connections.close_all)()  # the thread behind the coroutine has a connection of its own

    assert asyncio.run(run()) == 2
    assert Package.objects.get(name="links").link_count == 2


@pytest.mark.parametrize("package", ["json", "email", "html", "xml"])
def test_a_refresh_fails_at_first_and_succeeds_within_its_attempts(package: str) -> None:
    failed = []
    for attempt in range(1, tasks.flaky_refresh.max_attempts + 1):
        try:
            tasks.flaky_refresh.func(context(attempt=attempt), package)
        except tasks.flaky_refresh.retry_on as error:
            failed.append(error)
        else:
            break
    assert 1 <= len(failed) <= 2
    assert all(isinstance(error, OSError) and package in str(error) for error in failed)
    assert Package.objects.get(name=package).summary


def test_the_broken_parser_always_fails() -> None:
    for attempt in (1, 2, 9):
        with pytest.raises(SyntaxError, match="print"):
            tasks.broken_parser.func(context(attempt=attempt), "legacy.txt")


def test_a_digest_lists_what_is_indexed_and_differs_from_its_copy() -> None:
    for name in ("json.tool", "json.scanner", "argparse"):
        shelf.store_module(catalogue.find(name))
    for _ in range(2):
        assert tasks.mail_digest.func(context(), "ada@example.org", ["json", "html"]) == 1
    first, second = mail.outbox
    assert first.to == ["ada@example.org"]
    assert "json                     2 modules" in first.body
    assert "top-level" not in first.body
    assert first.extra_headers["Message-ID"] == second.extra_headers["Message-ID"]


def test_the_search_is_rebuilt_with_progress_to_the_end() -> None:
    shelf.store_module(catalogue.find("json.decoder"))
    desk = Desk()
    assert tasks.rebuild_search.func(context(desk), seconds=30) == Word.objects.count() > 5
    assert sum(desk.waits) == pytest.approx(30)
    percents = [percent for percent, _ in desk.reports]
    assert percents == sorted(percents)
    assert percents[-1] == 100


def test_an_export_writes_one_line_per_module(media: Path) -> None:
    shelf.store_module(catalogue.find("json.decoder"))
    assert tasks.export_archive.func(context(), seconds=0) == "exports/modules.jsonl"
    lines = (media / "exports" / "modules.jsonl").read_text().splitlines()
    assert [json.loads(line)["module"] for line in lines] == ["json.decoder"]


def test_an_export_that_is_interrupted_leaves_no_file(media: Path) -> None:
    with pytest.raises(Interrupted):
        tasks.export_archive.func(context(Desk(interrupt_after=3)))
    assert not media.exists()


def test_a_job_that_still_waits_is_not_enqueued_twice() -> None:
    first, second, other = (tasks.index_module.enqueue(name, pause=0.1) for name in ("json", "json", "html"))
    assert (first.created, second.created, other.created) == (True, False, True)
    assert first.id == second.id != other.id


@pytest.mark.long
def test_a_report_is_published_phase_by_phase(media: Path) -> None:
    shelf.store_module(catalogue.find("json.tool"))
    result = tasks.publish_report.enqueue(pause=0.01)
    assert run_until_idle() == 1
    job = Job.objects.get(pk=result.job_id)
    assert (job.status, job.result, job.phase) == ("SUCCESS", "reports/library.html", "write the page"), job.history
    assert b"<svg" in (media / "reports" / "library.svg").read_bytes()
    assert b"<th>json</th>" in (media / "reports" / "library.html").read_bytes()
