"""The list of jobs: what it shows, what it finds, and what it costs."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobqueue.admin import JobAdmin, filters, listing
from jobqueue.admin import task_choices as known
from jobqueue.core.masking import MASK
from jobqueue.db import claims
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.admin.conftest import LIST
from tests.factories import JobFactory, WorkerFactory
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db


def listed(client: Client, query: str = "") -> list[int]:
    response = client.get(f"{LIST}{query}")
    assert response.status_code == 200, response
    return [job.pk for job in response.context["cl"].result_list]


def statements(client: Client, query: str = "") -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(f"{LIST}{query}").status_code == 200
    return [each["sql"] for each in captured]


def test_the_newest_job_comes_first(viewer: Client) -> None:
    first, second = JobFactory(), JobFactory()
    assert listed(viewer) == [second.pk, first.pk]
    assert listed(viewer, "?o=0") == [first.pk, second.pk]


def test_a_row_shows_status_queue_task_priority_progress_times_attempt_and_worker(viewer: Client) -> None:
    known, now = WorkerFactory(host="web-1", pid=4121), timezone.now()
    JobFactory(
        running=True,
        queue="reports",
        task="shop.tasks.build_report",
        priority=7,
        progress=64,
        attempt=2,
        max_attempts=5,
        lease_owner=str(known.pk),
        enqueued_at=now - timedelta(seconds=75),
        started_at=now - timedelta(seconds=62),
        message="page 128 of 200",
    )
    page = viewer.get(LIST).content.decode()
    assert all(
        text in page for text in ("jq-running", "reports", "build_report", ">7<", 'value="64"', "13 s", "1 min 0", "2 of 5", "web-1:4121")
    )
    assert "page 128 of 200" in page


def test_every_state_has_its_badge(viewer: Client) -> None:
    for trait in ("scheduled", "queued", "running", "pause_requested", "paused", "error", "success", "canceled"):
        JobFactory(**{trait: True})
    JobFactory(running=True, started_at=timezone.now())
    page = viewer.get(LIST).content.decode()
    kinds = ("pending", "queued", "assigned", "running", "stopping", "paused", "error", "success", "canceled")
    assert [kind for kind in kinds if f"jq-badge jq-{kind}" not in page] == []


def test_an_unknown_worker_is_shown_by_its_shortened_identity(viewer: Client) -> None:
    owner = str(uuid4())
    JobFactory(running=True, lease_owner=owner)
    JobFactory(success=True, worker_ids=["a", "not-a-uuid-at-all"])
    page = viewer.get(LIST).content.decode()
    assert f"{owner[:8]}…" in page
    assert "not-a-uu…" in page


@pytest.mark.long
def test_the_number_of_queries_does_not_depend_on_the_number_of_rows(viewer: Client) -> None:
    def one() -> None:
        JobFactory(running=True, lease_owner=str(WorkerFactory().pk))

    one()
    viewer.get(LIST)  # the first request fills caches
    few = len(statements(viewer))
    for _ in range(99):
        one()
    assert len(statements(viewer)) == few
    assert few <= 14


def test_nothing_is_counted_without_a_limit_and_no_big_column_is_read(viewer: Client) -> None:
    JobFactory.create_batch(3)
    mine = [sql for sql in statements(viewer, "?status=QUEUED&queue=default&q=add") if "jobqueue_job" in sql]
    assert [sql for sql in mine if "COUNT(" in sql and "LIMIT" not in sql] == []
    big = [f'"jobqueue_job"."{name}"' for name in ("args", "kwargs", "options", "metadata", "result", "history")]
    # Those of the arguments are read only if they are small.
    assert [sql for sql in mine if any(f"{name}," in sql or f"{name} FROM" in sql for name in big)] == []


@pytest.mark.long
def test_pages_end_where_counting_ends(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_COUNTED", 4)
    monkeypatch.setattr(JobAdmin, "list_per_page", 2)
    jobs = JobFactory.create_batch(7)
    assert listed(viewer) == [jobs[6].pk, jobs[5].pk]
    assert listed(viewer, "?p=2") == [jobs[4].pk, jobs[3].pk]
    assert viewer.get(f"{LIST}?p=3").status_code == 302
    page = viewer.get(LIST).content.decode()
    assert "; only the first 4 are listed" in page
    assert "?p=3" not in page


@pytest.mark.long
@pytest.mark.postgresql
def test_a_large_table_is_estimated(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_COUNTED", 4)
    JobFactory.create_batch(9)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobqueue_job")
    assert "about 9 jobs (the database&#x27;s estimate); only the first 4" in viewer.get(LIST).content.decode()
    assert "4+ jobs; only the first 4" in viewer.get(f"{LIST}?queue=default").content.decode()


@pytest.mark.long
def test_search_finds_a_job_by_its_number_and_by_a_part_of_its_task(viewer: Client) -> None:
    one, other = JobFactory(), JobFactory(task="gone.tasks.old")
    assert listed(viewer, f"?q={one.pk}") == [one.pk]
    assert listed(viewer, f"?q=%23{one.pk}") == [one.pk]
    assert listed(viewer, "?q=TASKS.add") == [one.pk]
    assert listed(viewer, "?q=gone.tasks.old") == [other.pk]
    assert listed(viewer, "?q=old") == []


@pytest.mark.parametrize("name", ["q", "status", "queue", "task", "waiting"])
@pytest.mark.parametrize("value", ["%00", "a%00b", "9" * 30, "9" * 5000, "%F0%9F%92%A9", "'%22%3C", "%ED%A0%80", "-1", "²"])
def test_odd_values_in_the_address_give_an_empty_page(viewer: Client, name: str, value: str) -> None:
    JobFactory()
    assert listed(viewer, f"?{name}={value}") == []


@pytest.mark.parametrize("query", ["?p=99999999999999999999", "?o=99.x.-5", "?all=1", "?e=1", "?_facets=1"])
def test_odd_pages_and_orders_do_no_harm(viewer: Client, query: str) -> None:
    JobFactory()
    assert viewer.get(f"{LIST}{query}").status_code in (200, 302)


@pytest.mark.parametrize(
    "lookup", ["kwargs__password__startswith=a", "args__0=1", "id__gt=1", "message__contains=x", "status__exact=ERROR"]
)
def test_no_column_can_be_probed_through_the_address(viewer: Client, lookup: str) -> None:
    assert viewer.get(f"{LIST}?{lookup}").status_code == 400


def note(client: Client, query: str) -> Any:
    return client.get(f"{LIST}{query}").context["cl"].nothing_found


@pytest.mark.long
@pytest.mark.usefixtures("small_table")
def test_a_search_that_finds_nothing_says_what_was_searched_and_offers_what_would_find_it(viewer: Client) -> None:
    JobFactory.create_batch(2, queue="mail", task="shop.tasks.send", target="customer:7")
    found = note(viewer, "?q=mail")
    assert found.text.startswith(
        "No job found. The search covered all 2 jobs, by the path of the task, or a part of the path of a registered task."
    )
    assert found.offers == [("Jobs of queue mail", "?queue=mail"), ("Show all jobs", "?")]
    assert len(listed(viewer, found.offers[0][1])) == 2
    assert note(viewer, "?q=customer:7").offers[0] == ("Jobs of target customer:7", "?target=customer%3A7")
    found = note(viewer, "?q=shop.tasks.send&status=ERROR")
    assert "with the chosen filter (status)" in found.text
    assert found.offers[0] == ("Search without the filters", "?q=shop.tasks.send")
    assert "No job has the number 999999999. It may have been deleted by retention." in note(viewer, "?q=999999999").text
    for number in ("9" * 19, "9" * 20, "9" * 50, "0", "%230"):
        assert "is not the number of a job, which is a whole number from 1 to 9223372036854775807." in note(viewer, f"?q={number}").text
        assert note(viewer, f"?q={number}").text.startswith(number.replace("%23", "#")[:30])
    assert Job.objects.filter(pk=7).exists() or "No job has the number 7." in note(viewer, f"?q={'0' * 50}7").text
    assert "No job found with the chosen filter (queue). The search covered all 2 jobs." in note(viewer, "?queue=nobody").text
    assert note(viewer, "") is None
    assert note(viewer, "?queue=mail") is None
    page = viewer.get(f"{LIST}?q=<script>").content.decode()
    assert "<script>&" not in page
    assert "No job found." in page


def test_a_search_in_a_large_table_says_how_many_jobs_were_searched(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 2)
    JobFactory.create_batch(4)
    assert "The search covered the newest 2 jobs and the older open ones, by the path" in note(viewer, "?q=nothing.like.it").text


def test_an_unknown_filter_is_answered_by_a_page_that_names_the_filters(viewer: Client) -> None:
    response = viewer.get(f"{LIST}?queue=mail&message__contains=<b>&p=2")
    page = response.content.decode()
    assert response.status_code == 400
    assert "This list has no filter <code>message__contains</code>." in page
    assert "<code>status</code>, <code>waiting</code>, <code>queue</code>" in page
    assert response.context["without"] == "?queue=mail&p=2"


def test_filters_narrow_the_list(viewer: Client) -> None:
    error, due = JobFactory(error=True, queue="mail"), JobFactory(scheduled=True, task="tests.tasks.fail")
    queued = JobFactory()
    assert listed(viewer, "?status=ERROR") == [error.pk]
    assert listed(viewer, "?status=PENDING&waiting=time") == [due.pk]
    assert listed(viewer, "?waiting=time") == [due.pk]
    assert listed(viewer, "?queue=mail") == [error.pk]
    assert listed(viewer, "?task=tests.tasks.fail") == [due.pk]
    assert listed(viewer, "?queue=default") == [queued.pk, due.pk]


def test_filters_offer_what_is_known_without_looking_at_the_whole_table(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "NEWEST", 2)
    JobFactory(queue="old", success=True)
    JobFactory(queue="waits")
    WorkerFactory(queues=["served", "pattern-*", "!excluded", "!not-*", 7])
    WorkerFactory(queues={"not": "a list"})
    JobFactory(queue="recent", task="gone.tasks.recent", success=True)
    JobFactory(queue="mail", success=True)
    specs = {spec.title: dict(spec.lookup_choices) for spec in viewer.get(f"{LIST}?queue=mine").context["cl"].filter_specs}
    assert {*specs["queue"]} == {"waits", "served", "excluded", "recent", "mail", "mine"} | known.queues()
    assert "old" not in specs["queue"]
    assert {"tests.tasks.add", "gone.tasks.recent"} <= {*specs["task"]}


def test_recently_enqueued_tasks_are_offered_however_many_tasks_there_are(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_CHOICES", 2)
    JobFactory(task="zoo.tasks.feed")
    specs = {spec.title: dict(spec.lookup_choices) for spec in viewer.get(LIST).context["cl"].filter_specs}
    assert len(specs["task"]) == 2
    assert "zoo.tasks.feed" in specs["task"]


def test_queues_with_queued_jobs_are_found_by_hopping(db: None) -> None:
    for queue in ("b", "a", "c", "a"):
        JobFactory(queue=queue)
    JobFactory(queue="d", success=True)
    assert claims.queued_queues(Job.objects.database, 10) == ["a", "b", "c"]
    assert claims.queued_queues(Job.objects.database, 2) == ["a", "b"]


@pytest.mark.long
def test_fields_without_an_index_are_searched_among_the_newest_jobs_only(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 3)
    old_error, old, _ = JobFactory(error=True), JobFactory(queue="mail"), JobFactory(queue="mail", success=True)
    due = JobFactory(scheduled=True)
    new = JobFactory.create_batch(3)[::-1]
    assert listed(viewer, "?queue=mail") == [old.pk]
    assert listed(viewer, "?q=tests.tasks.add") == [*(job.pk for job in new), due.pk, old.pk, old_error.pk]
    assert listed(viewer, "?queue=mail&status=SUCCESS") == []
    assert listed(viewer, "?status=ERROR&task=tests.tasks.add") == [old_error.pk]
    assert listed(viewer, "?status=QUEUED&queue=mail") == [old.pk]
    assert listed(viewer, "?waiting=time") == [due.pk]
    assert listed(viewer, f"?q={old.pk}") == [old.pk]
    assert "The newest 3 jobs were searched, and all older ones that are pending" in viewer.get(f"{LIST}?queue=mail").content.decode()
    assert "jobs were searched" not in viewer.get(LIST).content.decode()


OPEN_TRAITS = ("scheduled", "waiting_for_children", "waiting_for_target", "queued", "running", "paused", "error")


@pytest.mark.parametrize("query", ["?queue=mail", "?task=shop.tasks.send", "?tenant=acme", "?q=shop.tasks.send", "?queue=mail&tenant=acme"])
def test_a_list_contains_its_open_jobs_however_old_they_are(viewer: Client, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    monkeypatch.setattr(listing, "WINDOW", 2)
    mine = {"queue": "mail", "task": "shop.tasks.send", "tenant": "acme"}
    old = [JobFactory(**{trait: True}, **mine) for trait in OPEN_TRAITS]
    JobFactory(success=True, **mine)
    for trait in OPEN_TRAITS:
        JobFactory(**{trait: True}, tenant="other")
    JobFactory.create_batch(2)
    assert listed(viewer, query) == [job.pk for job in reversed(old)]
    pending = [job.pk for job in reversed(old) if job.status == "PENDING"]
    assert listed(viewer, f"{query}&status=PENDING") == pending


def test_of_very_many_older_open_jobs_a_bounded_number_is_checked_and_the_page_says_so(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "WINDOW", 1)
    monkeypatch.setattr(listing, "MAX_CHECKED", 2)
    JobFactory.create_batch(3, scheduled=True)
    old = JobFactory(running=True, queue="mail")
    JobFactory()
    assert listed(viewer, "?queue=mail") == [old.pk]
    page = viewer.get(f"{LIST}?queue=mail").content.decode()
    assert "The newest 1 jobs were searched, and up to 2 older ones of each state that are pending" in page


@pytest.mark.slow
@pytest.mark.postgresql
def test_the_window_is_walked_in_the_index_of_the_primary_key(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 1000)
    Job.objects.bulk_create([Job(task="tests.tasks.add", status="SUCCESS") for _ in range(20_000)], batch_size=2000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobqueue_job")
        for sql in statements(viewer, "?task=gone.tasks.old"):
            if "gone.tasks.old" in sql and not sql.startswith("SET"):  # that of the open jobs is in test_overview_costs
                cursor.execute(f"EXPLAIN {sql}")
                plan = "\n".join(row[0] for row in cursor.fetchall())
                assert "jobqueue_job_pkey" in plan
                assert "Seq Scan" not in plan


@pytest.mark.slow
@pytest.mark.postgresql
def test_a_count_of_failed_jobs_reads_their_index_in_its_order(viewer: Client) -> None:
    now = timezone.now()
    Job.objects.bulk_create(
        [
            Job(task="tests.tasks.add", status="SUCCESS" if number % 200 else "ERROR", error_key=f"{number % 50}", finished_at=now)
            for number in range(20_000)
        ],
        batch_size=5000,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobqueue_job")
        [sql] = [sql for sql in statements(viewer, "?status=ERROR") if "count(*)" in sql and "LIMIT 10001" in sql]
        *hints, count = sql.split("; ")
        for hint in hints:
            cursor.execute(hint)
        cursor.execute(f"EXPLAIN {count}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "jobqueue_job_attention" in plan
    assert "Sort" not in plan


def test_secrets_and_markup_in_a_message_do_not_reach_the_list(viewer: Client) -> None:
    JobFactory(error=True, message="failed: password=hunter2 <script>alert(1)</script>", queue="<b>q</b>", task="x.<i>y</i>")
    page = viewer.get(LIST).content.decode()
    assert "hunter2" not in page
    assert "<script>alert" not in page
    assert "<b>q" not in page
    assert "<i>y" not in page


def test_the_list_loads_nothing_from_elsewhere_and_runs_no_script_of_its_own(viewer: Client) -> None:
    JobFactory(running=True, progress=30)
    page: Any = viewer.get(LIST).content.decode()
    assert "style=" not in page
    assert "<style" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "onclick" not in page


def test_a_project_may_narrow_what_a_user_sees(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = JobFactory(tenant="mine", queue="seen"), JobFactory(tenant="other")
    everything = JobAdmin.get_queryset
    monkeypatch.setattr(JobAdmin, "get_queryset", lambda self, request: everything(self, request).filter(tenant="mine"))
    assert listed(viewer) == [mine.pk]
    assert listed(viewer, f"?q={other.pk}") == []


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_the_list_shows_no_secret_that_a_task_has_raised(viewer: Client) -> None:
    job_id = samples.discreet.enqueue("NL-4711-0815").job_id
    run_until_idle()
    page = viewer.get(LIST).content.decode()
    assert f"no such account: {MASK}" in page
    assert "NL-4711-0815" not in page + Job.objects.get(pk=job_id).message
