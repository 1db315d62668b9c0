"""The test of a queue's webhook, in each way to send one: from the admin, over REST, on the command line."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from standardwebhooks import Webhook

from jobqueue.core.webhook_rules import shown_url
from jobqueue.exceptions import InvalidOption, JobQueueError
from jobqueue.models import Queue, WebhookDelivery
from jobqueue.webhooks import outbox, trial
from jobqueue.webhooks.trial import send_test
from tests.webhooks.conftest import Listen
from tests.webhooks.receivers import SECRET, says

pytestmark = [pytest.mark.django_db]


def queue(url: str) -> None:
    Queue.objects.update_or_create(name="mail", defaults={"webhook_url": url})


@pytest.mark.usefixtures("local")
def test_a_test_is_signed_and_shows_the_response(listen: Listen) -> None:
    receiver = listen(says(201, body=b'{"seen": true, "token": "hunter2"}'))
    queue(receiver.url)
    result = send_test("mail")
    assert (result.delivered, result.signed, result.status, result.error) == (True, True, 201, "")
    assert result.excerpt.startswith('{"seen": true')
    assert "hunter2" not in result.excerpt
    assert result.milliseconds is not None
    [request] = receiver.requests
    assert Webhook(SECRET).verify(request.body, request.headers)["type"] == trial.EVENT
    assert not WebhookDelivery.objects.exists()


@pytest.mark.usefixtures("local")
def test_a_refusal_of_the_receiver_is_shown(listen: Listen) -> None:
    receiver = listen(says(500, body=b"out of paper"))
    queue(receiver.url)
    result = send_test("mail")
    assert (result.delivered, result.status, result.excerpt) == (False, 500, "out of paper")


def test_an_address_inside_of_the_network_is_refused_as_for_a_delivery(settings: Any, listen: Listen) -> None:
    settings.JOBQUEUE = {"WEBHOOK_SECRET": SECRET}
    receiver = listen(says(200))
    queue(receiver.url)
    assert send_test("mail").error.startswith("Refused: 127.0.0.1 has an address that is not public")
    assert receiver.connections == 0


def test_without_a_secret_nothing_is_sent_if_only_signed_messages_may_be(settings: Any, listen: Listen) -> None:
    settings.JOBQUEUE = {"WEBHOOK_ALLOWED_HOSTS": ["127.0.0.0/8"], "WEBHOOK_SIGNED_ONLY": True}
    receiver = listen(says(200))
    queue(receiver.url)
    assert send_test("mail").error == trial.UNSIGNED
    assert receiver.connections == 0


def fail(*args: Any) -> str:
    raise LookupError("no secret of acme")


def test_an_error_of_the_projects_callable_is_shown(settings: Any) -> None:
    settings.JOBQUEUE = {"WEBHOOK_SECRET": fail}
    queue("http://127.0.0.1:9/hook")
    assert "LookupError: no secret of acme" in send_test("mail").error


def test_a_queue_without_a_url_and_a_process_without_the_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="Queue 'mail' has no webhook URL: set one first"):
        send_test("mail")
    queue("https://example.com/hook")
    monkeypatch.setattr("jobqueue.core.webhook_rules.missing_packages", lambda: ["httpx"])
    with pytest.raises(JobQueueError, match=r"pip install 'jobqueue\[webhooks\]'"):
        send_test("mail")


@pytest.mark.usefixtures("local")
def test_the_command_shows_the_response_and_fails_if_it_was_not_accepted(listen: Listen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jobqueue.audit")
    receiver = listen(says(200, 503, body=b"hello"))
    queue(receiver.url)
    out = StringIO()
    call_command("jobqueue", "test-webhook", "mail", stdout=out)
    assert f"A test (signed) was sent to {shown_url(receiver.url)}: status 200 in " in out.getvalue()
    assert "The response begins: hello" in out.getvalue()
    with pytest.raises(SystemExit):
        call_command("jobqueue", "test-webhook", "mail", "--json", stdout=(out := StringIO()))
    assert json.loads(out.getvalue())["status"] == 503
    assert "test-webhook queue mail: done" in caplog.text


@pytest.mark.usefixtures("local")
def test_the_page_of_the_webhook_sends_a_test_by_post_only(listen: Listen) -> None:
    receiver = listen(says(200, body=b"<b>hello</b>"))
    queue(receiver.url)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    path = "/admin/jobqueue/queue/webhook/test/"
    assert client.get(path, {"queue": "mail"}).status_code == 302
    page = client.post(path, {"queue": "mail"}).content.decode()
    assert "accepted" in page
    assert "&lt;b&gt;hello&lt;/b&gt;" in page
    assert len(receiver.requests) == 1
    assert "Send a test" in client.get("/admin/jobqueue/queue/webhook/?queue=mail").content.decode()
    queue("")
    assert "has no webhook URL" in client.post(path, {"queue": "mail"}, follow=True).content.decode()


@pytest.mark.usefixtures("local")
def test_rest_sends_a_test(listen: Listen) -> None:
    receiver = listen(says(204))
    queue(receiver.url)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert client.post("/jobqueue/queues/mail/test-webhook/").json()["status"] == 204
    queue("")
    assert client.post("/jobqueue/queues/mail/test-webhook/").status_code == 409


@pytest.mark.usefixtures("local")
def test_a_second_test_does_not_wait_beside_one_that_hangs(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outbox.check_packages() is None
    monkeypatch.setattr(trial, "PATIENCE_SECONDS", -0.9)
    queue(listen(lambda connection, number: connection.recv(1) and None).url)
    assert "has not returned after" in send_test("mail").error
    assert "previous call has not returned" in send_test("mail").error
