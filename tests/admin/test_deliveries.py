"""The pages of webhook deliveries: the list, one delivery, those of a job, and sending again."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from jobqueue import clock
from jobqueue.admin import DeliveryAdmin, delivery_list, delivery_verbs, listing
from jobqueue.insight.timeline import timeline
from jobqueue.models import Job, Queue, WebhookDelivery
from tests.admin.conftest import Login, choose, detail, told
from tests.factories import DeliveryFactory, JobFactory

pytestmark = pytest.mark.django_db
LIST = "/admin/jobqueue/webhookdelivery/"
EVIL = "<img src=x onerror=alert(1)>'\"&"


@pytest.fixture
def viewer(login: Login) -> Client:
    return login("view_webhookdelivery", "view_job")


@pytest.fixture
def sender(login: Login) -> Client:
    return login("view_webhookdelivery", "redeliver_webhookdelivery")


def page_of(delivery: Any) -> str:
    return f"{LIST}{delivery.pk}/change/"


def listed(client: Client, query: str = "") -> list[int]:
    return [row.pk for row in client.get(f"{LIST}{query}").context["cl"].result_list]


def text(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return str(response.content.decode())


def state(delivery: Any) -> tuple[str, int]:
    found: tuple[str, int] = WebhookDelivery.objects.values_list("status", "attempts").get(pk=delivery.pk)
    return found


def audit() -> list[tuple[str, str]]:
    return [(entry.object_id, entry.get_change_message()) for entry in LogEntry.objects.order_by("pk")]


# The list


def test_the_newest_come_first_and_show_what_matters(viewer: Client) -> None:
    one = DeliveryFactory(delivered=True, url="https://user:hunter2@example.com/hook?token=hunter3")
    other = DeliveryFactory(failed=True, event="job.failed")
    assert listed(viewer) == [other.pk, one.pk]
    page = text(viewer, LIST)
    assert "hunter" not in page
    assert f'<a href="{detail(one.job)}">#{one.job_id}</a>' in page
    for shown in ("Delivered", "Failed", "job.failed", "the receiver returned status 500", ">204<", "2 deliveries"):
        assert shown in page


@pytest.mark.long
def test_the_filters_choose_by_status_and_event_and_the_search_by_job(viewer: Client) -> None:
    sent, failed = DeliveryFactory(delivered=True), DeliveryFactory(failed=True, event="job.failed")
    waiting = DeliveryFactory(job=failed.job)
    assert listed(viewer, "?status=FAILED") == [failed.pk]
    assert listed(viewer, "?status=PENDING") == [waiting.pk]
    assert listed(viewer, "?event=job.completed") == [waiting.pk, sent.pk]
    assert listed(viewer, f"?q={failed.job_id}") == [waiting.pk, failed.pk]
    assert listed(viewer, f"?q=%23{sent.job_id}&status=DELIVERED") == [sent.pk]
    for nothing in ("?q=example", "?q=9999999999999999999999", "?status=%00", "?status=NONE", "?event=%00", "?q=%00"):
        assert listed(viewer, nothing) == []
    for wrong in ("example", "9999999999999999999999", "0"):
        said = f"No delivery found. {wrong} is not the number of a job, which is a whole number from 1 to 9223372036854775807."
        assert viewer.get(f"{LIST}?q={wrong}").context["cl"].nothing_found.text == said


def test_no_other_column_can_be_asked_about_in_the_address(viewer: Client) -> None:
    DeliveryFactory()
    assert viewer.get(f"{LIST}?url__startswith=https://example").status_code in (302, 400)


def test_of_a_large_table_only_the_newest_are_filtered_and_nothing_is_counted_without_a_limit(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, *_ = [DeliveryFactory(failed=True) for _ in range(4)]
    monkeypatch.setattr(delivery_list, "WINDOW", 3)
    with CaptureQueriesContext(connection) as queries:
        assert old.pk not in listed(viewer, "?status=FAILED")
    mine = [query["sql"] for query in queries if "jobqueue_webhookdelivery" in query["sql"]]
    assert [sql for sql in mine if "COUNT(" in sql and "LIMIT" not in sql] == []
    assert [sql for sql in mine if '"facts"' in sql or '"body"' in sql] == []
    assert "Only the newest 3 deliveries were searched." in text(viewer, f"{LIST}?status=FAILED")
    assert old.pk in listed(viewer)
    assert old.pk in listed(viewer, f"?status=FAILED&q={old.job_id}")


def test_the_list_says_where_counting_ends(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_COUNTED", 2)
    monkeypatch.setattr(delivery_list, "MAX_COUNTED", 2)
    for _ in range(4):
        DeliveryFactory()
    assert "2+ deliveries; only the first 2 are listed" in text(viewer, LIST)


def test_the_number_of_queries_does_not_depend_on_the_number_of_rows(viewer: Client) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            viewer.get(LIST)
        return len(queries)

    DeliveryFactory()
    count()
    few = count()
    for _ in range(20):
        DeliveryFactory(failed=True)
    assert count() == few <= 12


# One delivery


@pytest.mark.long
def test_the_page_of_one_shows_its_facts_and_its_message_masked_and_escaped(viewer: Client) -> None:
    body = '{"type": "job.failed", "data": {"message": "' + "<script>alert(1)</script> password=hunter2" + '"}}'
    one = DeliveryFactory(failed=True, body=body, error=f"{EVIL} token=hunter3", url=f"https://example.com/{EVIL}?secret=hunter4")
    page = text(viewer, page_of(one))
    assert "hunter" not in page
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert escape("<script>alert(1)</script>") in page
    assert str(one.message_id) in page
    assert escape(EVIL) in page
    for path in (LIST, detail(one.job)):
        assert "<img src=x" not in text(viewer, path)
        assert "hunter" not in text(viewer, path)


@pytest.mark.parametrize("body", ["", "{", "[1]", '"text"', "null"])
def test_a_message_of_any_shape_is_shown(viewer: Client, body: str) -> None:
    assert viewer.get(page_of(DeliveryFactory(body=body, facts=["odd"]))).status_code == 200


def test_one_that_is_gone_leads_to_the_list(viewer: Client) -> None:
    response = viewer.get(f"{LIST}12345/change/")
    assert response.url == LIST
    assert told(response) == ["There is no delivery 12345; it may have been deleted."]


def test_no_form_changes_adds_or_deletes_one(sender: Client) -> None:
    one = DeliveryFactory(failed=True)
    assert sender.post(page_of(one), {"url": "https://elsewhere.example/"}).status_code == 403
    assert sender.get(f"{LIST}add/").status_code == 403
    assert sender.post(f"{LIST}{one.pk}/delete/", {"post": "yes"}).status_code == 403
    assert WebhookDelivery.objects.get().url == one.url


def test_a_user_without_the_view_permission_sees_nothing(login: Login) -> None:
    one = DeliveryFactory(failed=True)
    nobody = login("view_job")
    assert nobody.get(LIST).status_code == 403
    assert nobody.get(page_of(one)).status_code == 403
    assert "jq-deliveries" not in text(nobody, detail(one.job))


# On the page of a job


def test_the_page_of_a_job_shows_its_newest_deliveries(viewer: Client) -> None:
    job = JobFactory(success=True)
    made = [DeliveryFactory(job=job, failed=True) for _ in range(12)]
    other = DeliveryFactory()
    page = text(viewer, detail(job))
    assert [row.pk in made for row in (other,)] == [False]
    shown = [one.pk for one in made if page_of(one) in page]
    assert shown == [one.pk for one in made[2:]]
    assert page_of(other) not in page
    assert f'href="{LIST}?q={job.pk}"' in page
    assert "jq-deliveries" not in text(viewer, detail(JobFactory()))


# Sending again


def test_one_is_sent_again_only_after_a_page_has_asked(sender: Client) -> None:
    one = DeliveryFactory(failed=True)
    before = WebhookDelivery.objects.get()
    asked = sender.post(f"{LIST}{one.pk}/redeliver/")
    assert "Send 1 delivery again?" in asked.content.decode()
    assert (state(one), audit()) == (("FAILED", 11), [])
    response = sender.post(f"{LIST}{one.pk}/redeliver/", {"confirmed": str(one.pk)})
    assert response.url == page_of(one)
    assert told(response) == [f"Delivery {one.pk} is sent again."]
    after = WebhookDelivery.objects.get()
    assert (after.status, after.attempts, after.finished_at) == ("PENDING", 0, None)
    assert (after.message_id, after.body, after.url) == (before.message_id, before.body, before.url)
    assert after.next_attempt_at > before.next_attempt_at
    assert audit() == [(str(one.pk), "Redelivered; it was FAILED.")]


def test_several_are_sent_again_and_pending_ones_are_reported(sender: Client) -> None:
    sent, failed, waiting = DeliveryFactory(delivered=True), DeliveryFactory(failed=True), DeliveryFactory(attempts=2)
    asked = choose(sender, "redeliver_selected", sent, failed, waiting, url=LIST)
    page = asked.content.decode()
    assert "Send 2 deliveries again?" in page
    assert "Also selected, and not changed: 1 that is still to be sent." in page
    confirmed = f"{failed.pk},{sent.pk}"
    response = choose(sender, "redeliver_selected", sent, failed, waiting, url=LIST, confirmed=confirmed)
    assert told(response) == ["2 deliveries are sent again.", "1 not sent again: it has not been sent yet, or is being sent."]
    assert [state(one) for one in (sent, failed, waiting)] == [("PENDING", 0), ("PENDING", 0), ("PENDING", 2)]


def test_a_delivery_that_was_not_shown_needs_a_confirmation(sender: Client) -> None:
    shown, other = DeliveryFactory(failed=True), DeliveryFactory(failed=True)
    response = choose(sender, "redeliver_selected", shown, other, url=LIST, confirmed=str(shown.pk))
    assert "Send 2 deliveries again?" in response.content.decode()
    assert (state(shown), state(other)) == (("FAILED", 11), ("FAILED", 11))


@pytest.mark.long
def test_all_on_all_pages_are_taken_up_to_a_number(sender: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_verbs, "MAX_AT_ONCE", 2)
    made = [DeliveryFactory(failed=True) for _ in range(3)]
    response = choose(sender, "redeliver_selected", made[0], url=LIST, select_across=1)
    assert "Send 2 deliveries again?" in response.content.decode()
    assert "More than 2 deliveries were selected." in response.content.decode()


def test_only_who_has_the_permission_sends_again_and_only_by_post_with_a_token(login: Login) -> None:
    one = DeliveryFactory(failed=True)
    path, data = f"{LIST}{one.pk}/redeliver/", {"confirmed": str(one.pk)}
    viewer = login("view_webhookdelivery", "change_webhookdelivery", "change_queue")
    assert viewer.post(path, data).status_code == 403
    assert "Redeliver" not in text(viewer, page_of(one))
    choose(viewer, "redeliver_selected", one, url=LIST, **data)
    assert login("redeliver_webhookdelivery").post(path, data).status_code == 403
    both = ("view_webhookdelivery", "redeliver_webhookdelivery")
    assert login(*both, enforce_csrf_checks=True).post(path, data).status_code == 403
    assert Client().post(path, data).status_code == 302
    assert login(*both).get(path, data).url == page_of(one)
    assert (state(one), audit()) == (("FAILED", 11), [])


@pytest.mark.long
def test_one_that_a_project_hides_is_neither_shown_nor_sent_again(sender: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = DeliveryFactory(failed=True, queue="hidden")
    everything = DeliveryAdmin.get_queryset
    monkeypatch.setattr(DeliveryAdmin, "get_queryset", lambda self, request: everything(self, request).exclude(queue="hidden"))
    assert listed(sender) == []
    sender.post(f"{LIST}{hidden.pk}/redeliver/", {"confirmed": str(hidden.pk)})
    choose(sender, "redeliver_selected", hidden, url=LIST, confirmed=str(hidden.pk))
    assert state(hidden) == ("FAILED", 11)


@pytest.mark.parametrize("selected", ["x", "9" * 30, "#1", "1 OR 1=1"])
def test_a_selection_that_is_no_number_is_a_bad_request(sender: Client, selected: str) -> None:
    DeliveryFactory(failed=True)
    response = sender.post(LIST, {"action": "redeliver_selected", "index": 0, "select_across": 0, "_selected_action": [selected]})
    assert response.status_code == 400


# Sending now, giving up, another URL


@pytest.fixture
def chief(login: Login) -> Client:
    return login("view_webhookdelivery", "redeliver_webhookdelivery", "give_up_webhookdelivery")


def done(client: Client, delivery: Any, verb: str) -> list[str]:
    """Run a verb with its confirmation, and return the messages."""
    path = f"{LIST}{delivery.pk}/{verb}/"
    assert client.post(path).status_code == 200
    return told(client.post(path, {"confirmed": str(delivery.pk)}))


def waiting(**values: Any) -> Any:
    later = timezone.now() + timedelta(hours=1)
    return DeliveryFactory(attempts=3, error="the receiver returned status 500", next_attempt_at=later, **values)


def test_a_pending_delivery_is_sent_now(chief: Client) -> None:
    one = waiting()
    assert done(chief, one, "send-now") == [f"Delivery {one.pk} is sent now."]
    after = WebhookDelivery.objects.get()
    assert (after.status, after.attempts, after.next_attempt_at <= clock.now()) == ("PENDING", 3, True)
    assert audit() == [(str(one.pk), "Sent now; it was PENDING.")]


def test_a_pending_delivery_is_given_up_and_the_job_says_so(chief: Client) -> None:
    one = waiting()
    assert done(chief, one, "give-up") == [f"Delivery {one.pk} is given up."]
    after = WebhookDelivery.objects.get()
    assert (after.status, after.attempts) == ("FAILED", 3)
    assert after.finished_at is not None
    assert after.error == "Given up by an operator. the receiver returned status 500"
    assert [event.name for event in timeline(one.job)[0]] == ["job.webhook.failed"]
    assert audit() == [(str(one.pk), "Given up; it was PENDING.")]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("trait", ["waiting", "failed"])
def test_a_delivery_is_moved_to_the_current_url(chief: Client, own: bool, trait: str) -> None:
    one = waiting() if trait == "waiting" else DeliveryFactory(failed=True)
    Queue.objects.create(name="default", webhook_url="https://right.example/queue")
    url = "https://right.example/queue"
    if own:
        url = "https://right.example/job"
        Job.objects.filter(pk=one.job_id).update(webhook_url=url)
    assert done(chief, one, "use-current-url") == [f"Delivery {one.pk} is sent to the current URL."]
    after = WebhookDelivery.objects.get()
    assert (after.url, after.status, after.attempts, after.finished_at) == (url, "PENDING", 0, None)
    assert after.next_attempt_at <= clock.now()
    assert done(chief, one, "use-current-url")[-1] == "1 not sent to the current URL: it already goes to the current URL."


def test_without_a_current_url_a_delivery_stays_as_it_is(chief: Client) -> None:
    one = waiting()
    assert done(chief, one, "use-current-url") == ["1 not sent to the current URL: neither its job nor its queue has a webhook URL now."]
    assert WebhookDelivery.objects.get().next_attempt_at == one.next_attempt_at


@pytest.mark.long
@pytest.mark.parametrize("verb", ["send-now", "use-current-url"])
def test_one_that_may_be_under_way_is_not_sent_a_second_time(chief: Client, verb: str) -> None:
    one = DeliveryFactory(attempts=1, next_attempt_at=timezone.now() + timedelta(seconds=15))
    Queue.objects.create(name="default", webhook_url="https://right.example/queue")
    assert "it is being sent, or will be sent within 20 s" in done(chief, one, verb)[-1]
    assert WebhookDelivery.objects.get().url == one.url


@pytest.mark.parametrize(("verb", "missing"), [("send-now", "redeliver"), ("use-current-url", "redeliver"), ("give-up", "give_up")])
def test_each_verb_needs_its_permission(login: Login, verb: str, missing: str) -> None:
    one = waiting()
    others = [f"{name}_webhookdelivery" for name in ("view", "redeliver", "give_up") if name != missing]
    client = login(*others)
    data = {"confirmed": str(one.pk)}
    assert client.post(f"{LIST}{one.pk}/{verb}/", data).status_code == 403
    choose(client, f"{verb.replace('-', '_')}_selected", one, url=LIST, **data)
    assert state(one) == ("PENDING", 3)
    assert WebhookDelivery.objects.get().next_attempt_at == one.next_attempt_at


def test_several_are_given_up_at_once_and_the_page_says_what_that_means(chief: Client) -> None:
    made = [waiting() for _ in range(2)]
    sent = DeliveryFactory(delivered=True)
    page = choose(chief, "give_up_selected", *made, sent, url=LIST)
    assert "Give up 2 deliveries?" in page.content.decode()
    assert "No further attempt is made" in page.content.decode()
    confirmed = ",".join(str(one.pk) for one in made)
    response = choose(chief, "give_up_selected", *made, sent, url=LIST, confirmed=confirmed)
    assert told(response) == ["2 deliveries are given up.", "1 not given up: it was already delivered or given up."]


def test_the_command_does_the_same_to_deliveries() -> None:
    one, other = waiting(), DeliveryFactory(delivered=True)
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("jobqueue", "deliveries", "give-up", str(one.pk), str(other.pk), stdout=out)
    assert out.getvalue().splitlines() == [
        f"Delivery {one.pk} is given up.",
        f"Delivery {other.pk} is not given up: it was already delivered or given up.",
    ]
    out = StringIO()
    call_command("jobqueue", "deliveries", "send-now", str(waiting().pk), "--json", stdout=out)
    assert json.loads(out.getvalue())[0]["done"] is True
