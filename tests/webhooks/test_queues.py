"""Where the events of a queue's jobs are sent, set in code."""

from typing import Any

import pytest

import jobqueue
from jobqueue import InvalidOption, set_queue_webhook
from jobqueue.models import Queue, WebhookDelivery
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db
URL = "https://example.com/hook"


def test_a_webhook_applies_to_jobs_that_end_later() -> None:
    answer = set_queue_webhook("default", URL)
    assert (answer.changed, answer.url, answer.events) == (True, URL, ())
    job_id = samples.plain.enqueue().job_id
    assert run_until_idle() == 1
    assert list(WebhookDelivery.objects.values_list("job_id", "event", "url")) == [(job_id, "job.completed", URL)]
    assert set_queue_webhook("default", None).changed
    samples.plain.enqueue()
    assert run_until_idle() == 1
    assert WebhookDelivery.objects.count() == 1


def test_the_events_stay_where_none_are_given_and_go_where_an_empty_list_is() -> None:
    set_queue_webhook("mail", URL, ["job.failed"])
    assert set_queue_webhook("mail", None).events == ("job.failed",)
    assert Queue.objects.get().webhook_events == ["job.failed"]
    assert set_queue_webhook("mail", URL, []).events == ()
    assert not set_queue_webhook("mail", URL, []).changed


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("", URL), "The name of the queue is ''"),
        (("mail", "example.com"), "webhook_url is 'example.com': it must begin with https://"),
        (("mail", 7), "webhook_url is 7: it must be text"),
        (("mail", "http://10.0.0.1/"), "10.0.0.1 is an address that is not public; WEBHOOK_ALLOWED_HOSTS can allow it"),
        (("mail", URL, "job.failed"), "webhook_events is 'job.failed': it must be a list"),
        (("mail", URL, ["job.webhook.failed"]), "'job.webhook.failed' is not an event"),
        (("mail", URL, [7]), "'7' is not an event"),
    ],
)
def test_invalid_values_are_refused_with_the_rule(arguments: Any, text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        set_queue_webhook(*arguments)
    assert text in str(caught.value)
    assert Queue.objects.count() == 0


@pytest.mark.parametrize("url", ["https://bücher.example/", "https://1password.com/", "https://[2606:4700::1111]/", "https://8.8.8.8/x"])
def test_public_names_and_addresses_are_taken(url: str) -> None:
    assert set_queue_webhook("mail", url).url == url


def test_it_is_part_of_the_public_face() -> None:
    assert "set_queue_webhook" in jobqueue.__all__
