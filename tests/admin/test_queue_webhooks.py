"""The form of a queue's webhook: who may use it, what it refuses, what is stored, and what other users see of the URL."""

from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils.html import escape

from jobqueue.admin import QueueAdmin
from jobqueue.core import webhook_rules
from jobqueue.core.webhook_rules import shown_url
from jobqueue.models import Queue
from tests.admin.conftest import Login, told
from tests.factories import DeliveryFactory, JobFactory

pytestmark = pytest.mark.django_db
PAGE = "/admin/jobqueue/queue/"
FORM = f"{PAGE}webhook/"
URL = "https://example.com/hook/hunter2?token=hunter2&team=a"
EVIL = "<img src=x onerror=alert(1)>'\"&/?"


@pytest.fixture
def editor(login: Login) -> Client:
    return login("view_queue", "set_webhook_queue")


def row(name: str = "mail") -> Any:
    return Queue.objects.filter(pk=name).values_list("webhook_url", "webhook_events").first()


def audit() -> list[tuple[str, str]]:
    return [(entry.object_id, entry.get_change_message()) for entry in LogEntry.objects.order_by("pk")]


def test_a_url_and_events_are_saved_and_who_did_it_is_kept_without_the_secret(editor: Client) -> None:
    response = editor.post(FORM, {"queue": "mail", "url": f" {URL} ", "events": ["job.failed", "job.started"]})
    assert response.url == PAGE
    assert row() == (URL, ["job.started", "job.failed"])
    said = f"The events job.started, job.failed are sent to {shown_url(URL)}."
    assert told(response) == [f"Queue mail: {said}"]
    assert audit() == [("mail", said)]


def test_a_failed_delivery_is_corrected_and_sent_with_two_buttons(login: Login) -> None:
    delivery = DeliveryFactory(failed=True, queue="mail", job=JobFactory(queue="mail"))
    rights = ("view_queue", "set_webhook_queue", "view_webhookdelivery", "view_job")
    client, data = login(*rights, "redeliver_webhookdelivery"), {"queue": "mail", "url": URL, "delivery": delivery.pk}
    form = f"{FORM}?queue=mail&delivery={delivery.pk}"
    button = f'name="confirmed" value="{delivery.pk}"'
    assert button in client.get(form).text
    assert button not in login(*rights).get(form).text
    login(*rights).post(FORM, {**data, "confirmed": delivery.pk})
    delivery.refresh_from_db()
    assert delivery.status == "FAILED"
    response = client.post(FORM, {**data, "confirmed": delivery.pk})
    assert response.url == f"/admin/jobqueue/webhookdelivery/{delivery.pk}/change/"
    assert f"Delivery {delivery.pk} is sent to the current URL." in told(response)
    delivery.refresh_from_db()
    assert (delivery.status, delivery.url, delivery.attempts) == ("PENDING", URL, 0)


def test_a_user_who_came_from_a_failing_delivery_returns_to_it_after_the_correction(login: Login) -> None:
    delivery = DeliveryFactory(failed=True, queue="mail", job=JobFactory(queue="mail"))
    page = f"/admin/jobqueue/webhookdelivery/{delivery.pk}/change/"
    client = login("view_queue", "set_webhook_queue", "view_webhookdelivery", "view_job")
    link = f"{FORM}?queue=mail&amp;delivery={delivery.pk}"
    assert link in client.get(page).content.decode()
    assert f'name="delivery" value="{delivery.pk}"' in client.get(unescape(link)).content.decode()
    assert client.post(FORM, {"queue": "mail", "url": "no", "delivery": delivery.pk}).context["delivery"] == delivery.pk
    assert client.post(FORM, {"queue": "mail", "url": URL, "delivery": delivery.pk}).url == page
    assert client.post(FORM, {"queue": "mail", "url": URL, "delivery": "//evil.example"}).url == PAGE
    assert link not in login("view_queue", "view_webhookdelivery", "view_job").get(page).content.decode()
    delivery.job.webhook_url = URL
    delivery.job.save()
    assert link not in client.get(page).content.decode()


def test_saving_it_again_changes_nothing_and_says_so(editor: Client) -> None:
    data = {"queue": "mail", "url": URL, "events": ["job.failed"]}
    editor.post(FORM, data)
    changed_at = Queue.objects.get().changed_at
    assert told(editor.post(FORM, data))[-1].endswith(" (no change).")
    assert Queue.objects.get().changed_at == changed_at
    assert len(audit()) == 1


def test_an_empty_url_takes_the_receiver_away_and_leaves_the_pause(editor: Client) -> None:
    Queue.objects.create(name="mail", paused=True, webhook_url=URL)
    assert told(editor.post(FORM, {"queue": "mail", "url": ""})) == ["Queue mail: No events are sent."]
    assert (row(), Queue.objects.get().paused) == (("", []), True)


def test_no_url_for_a_queue_without_a_row_makes_none(editor: Client) -> None:
    assert told(editor.post(FORM, {"queue": "mail", "url": ""})) == ["Queue mail: No events are sent (no change)."]
    assert row() is None


def test_the_form_shows_what_is_saved_to_who_may_change_it(editor: Client) -> None:
    Queue.objects.create(name="mail", webhook_url=URL, webhook_events=["job.failed"])
    page = editor.get(FORM, {"queue": "mail"}).content.decode()
    assert escape(URL) in page
    assert page.count(" checked") == 1
    for name in webhook_rules.EVENTS:
        assert f'value="{name}"' in page


def test_a_user_with_only_the_view_permission_sees_the_url_without_its_secret_and_no_form(login: Login) -> None:
    Queue.objects.create(name="mail", webhook_url=URL)
    viewer = login("view_queue")
    page = viewer.get(PAGE).content.decode()
    assert shown_url(URL) in page
    assert FORM not in page
    for path in (PAGE, f"{PAGE}mail/change/"):
        assert "hunter2" not in viewer.get(path).content.decode()
    assert viewer.get(FORM, {"queue": "mail"}).status_code == 403
    assert viewer.post(FORM, {"queue": "mail", "url": ""}).status_code == 403
    assert row() == (URL, [])


def test_a_post_without_a_token_or_a_login_changes_nothing(login: Login) -> None:
    data = {"queue": "mail", "url": URL}
    assert login("view_queue", "set_webhook_queue", enforce_csrf_checks=True).post(FORM, data).status_code == 403
    assert Client().post(FORM, data).status_code == 302
    assert row() is None


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://example.com/", "it must begin with https:// or http://"),
        ("javascript:alert(1)", "it must begin with https:// or http://"),
        ("https://user:hunter2@example.com/", "it must hold no user name or password"),
        ("https://example.com/" + "x" * 2000, "it must be text of 1 to 2000 characters"),
        ("https:///hook", "it must name a host"),
        ("http://127.0.0.1:8000/", "127.0.0.1 is an address that is not public; WEBHOOK_ALLOWED_HOSTS can allow it"),
        ("http://127.1/", "127.1 is an address that is not public"),
        ("http://0x7f000001/", "0x7f000001 is an address that is not public"),
        ("http://[::1]/", "::1 is an address that is not public"),
        ("http://[::ffff:169.254.169.254]/", "is an address that is not public"),
    ],
)
def test_a_wrong_url_is_reported_with_its_rule_and_changes_nothing(editor: Client, url: str, text: str) -> None:
    response = editor.post(FORM, {"queue": "mail", "url": url})
    assert response.status_code == 200
    [error] = response.context["form"].errors["url"]
    assert text in error
    assert "hunter2" not in error
    assert (row(), audit()) == (None, [])


def test_an_address_that_the_settings_allow_is_taken(editor: Client, settings: Any) -> None:
    settings.JOBQUEUE = {"WEBHOOK_ALLOWED_HOSTS": ["127.0.0.0/8"]}
    assert editor.post(FORM, {"queue": "mail", "url": "http://127.0.0.1:8000/"}).url == PAGE
    assert row() == ("http://127.0.0.1:8000/", [])


@pytest.mark.parametrize("name", ["job.webhook.delivered", "job.progress", "nothing"])
def test_an_event_that_is_never_sent_cannot_be_chosen(editor: Client, name: str) -> None:
    response = editor.post(FORM, {"queue": "mail", "url": URL, "events": [name]})
    assert name in response.context["form"].errors["events"][0]
    assert row() is None


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b"])
def test_a_name_that_no_queue_can_have_is_reported(editor: Client, name: str) -> None:
    response = editor.post(FORM, {"queue": name, "url": URL})
    assert response.url == PAGE
    assert "The name of the queue is" in told(response)[0]
    assert Queue.objects.count() == 0


def test_hostile_texts_are_escaped(editor: Client) -> None:
    url = f"https://example.com/{EVIL}".replace(" ", "")
    JobFactory(queue=EVIL)
    editor.post(FORM, {"queue": EVIL, "url": url})
    assert row(EVIL) == (url, [])
    for page in (editor.get(PAGE), editor.get(FORM, {"queue": EVIL}), editor.post(FORM, {"queue": EVIL, "url": EVIL})):
        assert "<img" not in page.content.decode()
        assert escape(EVIL) in page.content.decode()


def test_a_queue_that_a_project_hides_is_not_changed(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    Queue.objects.create(name="hidden")
    everything = QueueAdmin.get_queryset
    monkeypatch.setattr(QueueAdmin, "get_queryset", lambda self, request: everything(self, request).exclude(pk="hidden"))
    assert editor.get(FORM, {"queue": "hidden"}).status_code == 403
    assert editor.post(FORM, {"queue": "hidden", "url": URL}).status_code == 403
    assert row("hidden") == ("", [])


def test_events_that_were_stored_in_another_form_break_no_page(editor: Client) -> None:
    Queue.objects.create(name="mail", webhook_url=URL, webhook_events={"a": 1})
    for path in (PAGE, f"{PAGE}mail/change/", f"{FORM}?queue=mail"):
        assert editor.get(path).status_code == 200
