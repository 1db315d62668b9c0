"""The log of a job over REST and on the command line."""

from __future__ import annotations

import io
import json
import re
import threading
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobqueue.models import Job, JobLog
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def lines_of(job: Job, attempt: int, first: int, *lines: tuple[int, str]) -> JobLog:
    stored = json.dumps([[place, level, "shop", text] for place, (level, text) in enumerate(lines)])
    top = max(level for level, _ in lines)
    return JobLog.objects.create(job=job, attempt=attempt, first=first, last=first + len(lines) - 1, level=top, lines=stored)


@pytest.fixture
def job(db: None) -> Job:
    made: Job = JobFactory(error=True)
    lines_of(made, 1, 1, (20, "begin"), (40, "failed"))
    lines_of(made, 2, 101, (20, "again"), (30, "slow\nvery slow"))
    lines_of(JobFactory(), 1, 1, (50, "another job"))
    return made


def command(*args: Any) -> str:
    out = io.StringIO()
    call_command("jobqueue", "log", *map(str, args), stdout=out)
    return out.getvalue()


def test_rest_returns_the_lines_in_pages(login: Any, job: Job) -> None:
    client = login("view_job", "view_job_log")
    texts, after = [], ""
    while True:
        page = client.get(f"/jobqueue/jobs/{job.pk}/log/?limit=1{after}").json()
        [line] = page["lines"]
        texts.append((line["attempt"], line["number"], line["level"], line["text"]))
        after = f"&after={page['after']}"
        if not page["more"]:
            break
    assert texts == [(1, 1, "INFO", "begin"), (1, 2, "ERROR", "failed"), (2, 101, "INFO", "again"), (2, 102, "WARNING", "slow\nvery slow")]
    rest = client.get(f"/jobqueue/jobs/{job.pk}/log/?limit=1{after}").json()
    assert (rest["lines"], rest["more"], f"&after={rest['after']}") == ([], False, after)


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("level=warning", ["failed", "slow\nvery slow"]),
        ("attempt=1", ["begin", "failed"]),
        ("attempt=2&level=error", []),
        ("attempt=9", []),
    ],
)
def test_rest_filters_by_level_and_run(login: Any, job: Job, query: str, texts: list[str]) -> None:
    page = login("view_job", "view_job_log").get(f"/jobqueue/jobs/{job.pk}/log/?{query}").json()
    assert [line["text"] for line in page["lines"]] == texts


@pytest.mark.parametrize("query", ["level=loud", "attempt=0", "attempt=x", "after=0", "limit=0", f"attempt={10**20}"])
def test_rest_rejects_bad_filters(login: Any, job: Job, query: str) -> None:
    assert login("view_job", "view_job_log").get(f"/jobqueue/jobs/{job.pk}/log/?{query}").status_code == 400


def test_the_command_shows_the_lines_by_run(job: Job) -> None:
    shown = command(job.pk)
    assert [re.sub(r"^  \d[\d-]* [\d:]*", "", line).strip() for line in shown.splitlines()] == [
        "Run 1",
        "INFO shop: begin",
        "ERROR shop: failed",
        "Run 2 (100 earlier lines not kept)",
        "INFO shop: again",
        "WARNING shop: slow",
        "very slow",
    ]
    assert "failed" in command(job.pk, "--level", "error")
    assert "begin" not in command(job.pk, "--level", "error")
    assert "begin" not in command(job.pk, "--run", "2")
    assert [line["text"] for line in json.loads(command(job.pk, "--json"))][:2] == ["begin", "failed"]


def test_the_command_says_that_nothing_is_stored() -> None:
    assert "Nothing is stored." in command(JobFactory().pk)


@pytest.mark.parametrize("args", [["--run", "0"], ["--run", "x"], ["--follow", "--json"]])
def test_the_command_rejects_bad_options(job: Job, args: list[str]) -> None:
    with pytest.raises(CommandError):
        command(job.pk, *args)
    with pytest.raises(CommandError, match="There is no job"):
        command(10**9)


def test_the_command_follows_until_the_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory(running=True)
    lines_of(job, 1, 1, (20, "one"))

    def end() -> None:
        lines_of(job, 1, 3, (20, "three"))
        idle = {"lease_owner": "", "lease_expires_at": None, "heartbeat_at": None}
        Job.objects.filter(pk=job.pk).update(status="SUCCESS", holds_target=False, **idle)

    later = iter([lambda: lines_of(job, 1, 2, (20, "two")), end])
    monkeypatch.setattr(threading.Event, "wait", lambda self, seconds=None: next(later)())
    assert [line.split()[-1] for line in command(job.pk, "--follow").splitlines()] == ["1", "one", "two", "three"]


def test_a_row_that_is_no_list_of_lines_is_shown_as_one_line(login: Any) -> None:
    job = JobFactory()
    for lines in ("nonsense", "[[0, 20]]", "7", '[["x", 20, "shop", "text"]]', "[" * 5000):
        JobLog.objects.create(job=job, attempt=1, first=1, last=1, level=20, lines=lines)
    page = login("view_job", "view_job_log").get(f"/jobqueue/jobs/{job.pk}/log/").json()
    assert [line["text"] for line in page["lines"]][:4] == ["nonsense", "[[0, 20]]", "7", '[["x", 20, "shop", "text"]]']
