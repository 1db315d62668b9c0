"""The page of targets, the filter by target, and why a job waits on its own page."""

from typing import Any

import pytest
from django.test import Client
from django.urls import resolve
from django.utils.html import escape

from jobqueue.admin import JobAdmin, listing, targets
from jobqueue.models import Job
from tests.admin.conftest import LIST, VERBS, Login, button, detail, told
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
PAGE = f"{LIST}targets/"
CLEAR = f"{PAGE}clear/"
SEVEN = {"target": "customer:7"}
EVIL = "<img src=x onerror=alert(1)>'\"&"


def lines(client: Client, query: str = "") -> list[Any]:
    response = client.get(f"{PAGE}{query}")
    assert response.status_code == 200
    return list(response.context["targets"])


def text_of(client: Client, address: str = PAGE) -> str:
    return client.get(address).content.decode()


def states(*jobs: Any) -> list[str]:
    return [Job.objects.get(pk=job.pk).status for job in jobs]


@pytest.fixture
def stuck() -> tuple[Job, Job]:
    """Make a line of two behind a job in ERROR."""
    holder = JobFactory(**SEVEN, error=True, holds_target=True, task="shop.tasks.sync")
    return holder, JobFactory.create_batch(2, **SEVEN, waiting_for_target=True)[0]


def test_the_page_is_linked_from_the_list(viewer: Client) -> None:
    assert f'href="{PAGE}"' in text_of(viewer, LIST)


def test_a_line_shows_what_holds_it_its_state_who_waits_and_links(viewer: Client, stuck: Any) -> None:
    holder, _ = stuck
    page = text_of(viewer)
    assert all(text in page for text in (detail(holder), "shop.tasks.sync", "jq-error", "?target=customer%3A7", ">2<"))
    assert "jq-verb" not in page.replace("jq-verbs", "")


def test_a_free_line_names_the_next(viewer: Client) -> None:
    job = JobFactory(**SEVEN)
    page = text_of(viewer)
    assert "the next is" in page
    assert detail(job) in page


def test_nothing_is_said_where_nothing_is(viewer: Client) -> None:
    assert "No target is held, blocked or waited for." in text_of(viewer)
    assert "No such target" in text_of(viewer, f"{PAGE}?q=customer")


def test_lines_are_searched_by_name_and_narrowed_to_a_tenant(viewer: Client) -> None:
    for tenant in ("", "acme"):
        JobFactory(**SEVEN, paused=True, tenant=tenant)
        JobFactory(target="order:3", paused=True, tenant=tenant)
    assert [one.summary.target for one in lines(viewer, "?q=ORDER")] == ["order:3", "order:3"]
    assert [(one.summary.tenant, one.summary.target) for one in lines(viewer, "?q=order&tenant=acme")] == [("acme", "order:3")]
    assert "Remove the filter: tenant acme" in text_of(viewer, f"{PAGE}?tenant=acme")


@pytest.mark.parametrize("query", ["?q=%00", "?tenant=%00", f"?q={'x' * 5000}", "?q=%F0%9F%92%A9", "?q='%22--", "?tenant="])
def test_an_odd_query_finds_nothing_and_breaks_nothing(viewer: Client, query: str) -> None:
    assert lines(viewer, query) == []


def test_no_more_than_a_page_is_shown_and_the_rest_is_reported(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MAX_SHOWN", 2)
    for number in range(3):
        JobFactory(target=f"t{number}", paused=True)
    assert len(lines(viewer)) == 2
    assert "Only the first 2 lines are shown." in text_of(viewer)


@pytest.mark.long
def test_hostile_names_are_escaped_and_secrets_hidden(operator: Client) -> None:
    JobFactory(target=EVIL, tenant=EVIL, task=EVIL, error=True)
    JobFactory(target="password=hunter2", error=True)
    page = text_of(operator)
    assert EVIL not in page
    assert escape(EVIL) in page
    assert "hunter2" not in page
    listed = text_of(operator, LIST)
    assert EVIL not in listed
    assert "hunter2" not in listed


def test_lines_of_jobs_that_a_project_hides_are_not_shown(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory(**SEVEN, tenant="other", paused=True)
    JobFactory(**SEVEN, tenant="mine", paused=True)
    everything = JobAdmin.get_queryset
    monkeypatch.setattr(JobAdmin, "get_queryset", lambda self, request: everything(self, request).filter(tenant="mine"))
    assert [one.summary.tenant for one in lines(operator)] == ["mine"]
    operator.post(f"{CLEAR}?tenant=other&target=customer:7")
    assert states(*Job.objects.order_by("pk")) == ["PAUSED", "PAUSED"]


def test_the_page_takes_as_many_statements_for_many_lines_as_for_one(viewer: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(20):
        JobFactory(target=f"t{number}", paused=True)
        JobFactory(target=f"t{number}", waiting_for_target=True)
    with django_assert_max_num_queries(35):  # savepoints of the test's transaction included
        assert len(lines(viewer)) == 20


# Actions


@pytest.mark.parametrize(("verb", "status", "next_one"), [("resume", "QUEUED", "PENDING"), ("cancel", "CANCELED", "QUEUED")])
def test_a_verb_acts_on_the_holder_and_redirects_to_the_page(operator: Client, stuck: Any, verb: str, status: str, next_one: str) -> None:
    holder, waiting = stuck
    [one] = lines(operator, "?q=cust")
    assert [each.name for each, _ in one.verbs] == ["resume", "cancel"]
    address = {each.name: to for each, to in one.verbs}[verb]
    assert address == f"{button(holder, verb)}?from=targets&q=cust"
    response = operator.post(address)
    assert response.url == f"{PAGE}?q=cust"
    assert states(holder, waiting) == [status, next_one]


def test_clearing_a_target_cancels_whatever_holds_or_blocks_it(operator: Client, stuck: Any) -> None:
    holder, waiting = stuck
    blocker = JobFactory(**SEVEN, paused=True)
    [one] = lines(operator)
    page = operator.post(one.clear_url)
    assert page.context["title"] == "Cancel 2 jobs?"
    response = operator.post(one.clear_url, dict(page.context["fields"]))
    assert (response.url, told(response)) == (PAGE, ["2 jobs were canceled."])
    assert states(holder, blocker, waiting) == ["CANCELED", "CANCELED", "QUEUED"]
    assert told(operator.post(one.clear_url))[-1] == "No job holds or blocks target 'customer:7' now."


def test_clearing_a_target_that_a_running_job_holds_asks_first(operator: Client) -> None:
    holder = JobFactory(**SEVEN, running=True)
    [one] = lines(operator)
    page = operator.post(one.clear_url)
    assert page.status_code == 200
    assert "Canceling is final" in page.content.decode()
    assert page.context["back"] == one.clear_url
    assert Job.objects.get(pk=holder.pk).cancel_outcome == ""
    response = operator.post(one.clear_url, dict(page.context["fields"]))
    assert (response.url, Job.objects.get(pk=holder.pk).cancel_outcome) == (PAGE, "CANCELED")
    assert operator.get(one.clear_url).url == PAGE


def test_clearing_needs_post_a_token_and_the_permission_to_cancel(login: Login, viewer: Client, stuck: Any) -> None:
    holder, _ = stuck
    address = f"{CLEAR}?tenant=&target=customer:7&from=targets"
    assert login("view_job", "cancel_job").get(address).url == PAGE
    assert login("view_job", *VERBS, enforce_csrf_checks=True).post(address).status_code == 403
    assert login("view_job", *(name for name in VERBS if name != "cancel_job")).post(address).status_code == 403
    assert login("cancel_job").post(address).status_code == 403
    assert viewer.post(address).status_code == 403
    assert login("cancel_job").get(PAGE).status_code == 403
    assert viewer.post(PAGE).status_code == 403
    assert states(holder) == ["ERROR"]
    assert [one.clear_url for one in lines(viewer)] == [""]


@pytest.mark.parametrize("query", ["", "?target=%00", "?target=nothing", f"?target={'x' * 3000}"])
def test_clearing_a_free_target_says_so(operator: Client, query: str) -> None:
    assert "No job holds or blocks target" in told(operator.post(f"{CLEAR}{query}"))[0]


def test_no_transaction_is_around_all_jobs_that_are_cleared() -> None:
    assert "default" in resolve(CLEAR).func._non_atomic_requests


# The list, narrowed to a target


def listed(client: Client, query: str) -> list[int]:
    response = client.get(f"{LIST}{query}")
    assert response.status_code == 200
    return [job.pk for job in response.context["cl"].result_list]


def test_the_list_is_narrowed_to_a_target_by_its_exact_name_and_says_so(viewer: Client) -> None:
    jobs = [JobFactory(**SEVEN), JobFactory(**SEVEN, success=True), JobFactory(**SEVEN, tenant="acme")]
    JobFactory(target="customer:77")
    JobFactory()
    assert listed(viewer, "?target=customer:7") == [job.pk for job in reversed(jobs)]
    assert listed(viewer, "?target=customer:7&tenant=acme") == [jobs[2].pk]
    assert listed(viewer, "?tenant=acme") == [jobs[2].pk]
    assert listed(viewer, "?target=customer") == listed(viewer, "?target=%00") == []
    page = text_of(viewer, f"{LIST}?target=customer:7&status=QUEUED")
    assert 'aria-label="Remove the filter: target customer:7"' in page
    assert 'class="jq-chip" href="?status=QUEUED"' in page


def test_an_old_holder_is_found_beyond_the_window(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = JobFactory(**SEVEN, paused=True)
    parked = JobFactory(**SEVEN, waiting_for_target=True)
    foreign = JobFactory(**SEVEN, tenant="acme", error=True)
    JobFactory(**SEVEN, success=True)
    JobFactory.create_batch(5)
    newest = JobFactory(**SEVEN)
    monkeypatch.setattr(listing, "WINDOW", 3)
    assert listed(viewer, "?target=customer:7") == [newest.pk, foreign.pk, parked.pk, holder.pk]
    assert listed(viewer, "?target=customer:7&tenant=acme") == [foreign.pk]
    assert listed(viewer, "?target=customer:7&status=PAUSED") == [holder.pk]
    assert "those that hold the target or wait for it" in text_of(viewer, f"{LIST}?target=customer:7")


# The page of one job


def test_the_page_of_a_job_says_why_it_waits_and_links_to_the_other(viewer: Client, stuck: Any) -> None:
    holder, waiting = stuck
    page = text_of(viewer, detail(waiting))
    assert "Waits because:" in page
    assert f"Job {holder.pk} (shop.tasks.sync) holds target &#x27;customer:7&#x27;" in page
    assert f'<a href="{detail(holder)}">See job {holder.pk}</a>' in page
    assert "Waits because:" not in text_of(viewer, detail(holder))


def test_the_page_of_a_job_shows_its_tenant_and_its_target_as_a_link_to_all_of_its_jobs(viewer: Client) -> None:
    page = text_of(viewer, detail(JobFactory(**SEVEN, tenant="acme")))
    assert f'<a href="{LIST}?target=customer%3A7&amp;tenant=acme">customer:7</a>' in page
    assert "acme" in page
    assert "hunter2" not in text_of(viewer, detail(JobFactory(target="password=hunter2")))
