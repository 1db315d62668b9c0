"""The claim policy: pauses and limits of queues and the slots of tenants, read each second or after a notification."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from jobqueue import clock
from jobqueue.db import Scope
from jobqueue.lifecycle.limits import Limits
from jobqueue.lifecycle.queues import limit_queue, pause_queue, resume_queue
from jobqueue.models import Queue
from jobqueue.worker.claim_policy import READ_SECONDS, ClaimPolicy
from jobqueue.worker.claiming.listener import Listener
from jobqueue.worker.wakeups import Signal, Wakeups
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
numbers: Any = {}


def given() -> Any:
    """A callable of the project."""
    if isinstance(numbers, Exception):
        raise numbers
    return numbers


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    give({})


def give(value: Any) -> None:
    global numbers  # noqa: PLW0603
    numbers = value


class Told:
    """Record what the policy sets on the lanes."""

    def __init__(self) -> None:
        self.slots: list[dict[str, int]] = []

    def __call__(self, slots: dict[str, int]) -> None:
        self.slots.append(slots)


def policy(*queues: str, max_running: int | None = None) -> ClaimPolicy:
    made = ClaimPolicy(queues, max_running, lambda slots: None)
    made.refresh()
    return made


def age(policy: ClaimPolicy) -> None:
    """Move the last read to a second ago."""
    assert policy._read_at is not None
    policy._read_at -= READ_SECONDS


def test_pauses_and_limits_are_read_each_second_and_not_more_often(django_assert_num_queries: Callable[[int], Any]) -> None:
    found = policy()
    pause_queue("mail")
    limit_queue("reports", 3)
    with django_assert_num_queries(0):
        found.refresh()
    assert (found.paused, found.limits) == (frozenset(), Limits())
    age(found)
    with django_assert_num_queries(1):
        found.refresh()
    assert (found.paused, found.limits) == (frozenset({"mail"}), Limits(None, {"reports": 3}))
    assert sorted(found.no_hand_over_queues) == ["mail", "reports"]


def test_the_finisher_reads_queues_each_second_and_leaves_the_slots_of_tenants_to_the_dispatcher(
    django_assert_num_queries: Callable[[int], Any],
) -> None:
    told = Told()
    found = ClaimPolicy((), None, told)
    found.refresh()
    pause_queue("mail")
    with django_assert_num_queries(0):
        found.refresh_queues()
    found.invalidate()
    with django_assert_num_queries(1):
        found.refresh_queues()
        found.refresh_queues()
    assert (found.paused, len(told.slots)) == (frozenset({"mail"}), 1)
    with django_assert_num_queries(1):
        found.refresh()
    assert len(told.slots) == 2, "it was notified of a change, too"


def test_a_change_with_a_notification_is_read_at_once() -> None:
    found = policy()
    pause_queue("mail")
    found.invalidate()
    found.refresh()
    assert found.paused == {"mail"}
    resume_queue("mail")
    found.invalidate()
    found.refresh()
    assert found.paused == frozenset()


def test_the_listener_notifies_the_policy_before_it_wakes_the_dispatcher() -> None:
    told: list[str] = []
    wakeups = Wakeups()
    wakeups.subscribe(Signal.WORK, lambda tenant: told.append("work"))
    wakeups.subscribe(Signal.QUEUES, lambda: told.append("queues"))
    Listener("worker-1", ["mail"], wakeups, lambda *_: None)._pass_on("queues")
    assert told == ["queues", "work"]


def test_a_change_during_the_poll_is_polled_again() -> None:
    found = policy()
    found.invalidate()

    def pause_after(execute: Any, *args: Any) -> Any:
        rows = execute(*args)
        if not found.paused and "jobqueue_queue" in args[0] and args[0].startswith("SELECT"):
            found.invalidate()  # notified of a pause that this statement did not read
        return rows

    with connection.execute_wrapper(pause_after):
        found.refresh()
    pause_queue("mail")
    found.refresh()
    assert found.paused == {"mail"}


def test_a_query_that_fails_is_retried_in_the_next_turn() -> None:
    found = policy()
    pause_queue("mail")
    found.invalidate()

    def fail(*_: Any) -> Any:
        raise OperationalError("the server is away")

    with connection.execute_wrapper(fail), pytest.raises(OperationalError):
        found.refresh()
    found.refresh()
    assert found.paused == {"mail"}


def test_without_pauses_and_limits_a_scope_asks_the_database_nothing(django_assert_num_queries: Callable[[int], Any]) -> None:
    everywhere, two = policy(), policy("mail", "reports")
    with django_assert_num_queries(0):
        assert (everywhere.scope("acme"), two.scope("")) == (Scope("acme", ()), Scope("", ("mail", "reports")))
        assert everywhere.limits_of(Scope("acme", ())) is None


def test_a_paused_queue_is_in_no_scope() -> None:
    pause_queue("mail")
    for queue in ("mail", "reports", "other"):
        JobFactory(tenant="acme", queue=queue)
    JobFactory(tenant="globex", queue="mail")
    assert policy().scope("acme") == Scope("acme", ("other", "reports"))
    assert policy().scope("globex") is None
    assert policy("mail", "reports").scope("acme") == Scope("acme", ("reports",))
    assert policy("mail").scope("acme") is None


def test_a_limit_matters_where_its_queue_is_served() -> None:
    limit_queue("mail", 3)
    JobFactory(queue="mail")
    JobFactory(queue="other")
    found = policy()
    assert found.scope("") == Scope("", ("mail", "other"))
    assert found.limits_of(Scope("", ("mail", "other"))) == Limits(None, {"mail": 3})
    assert found.limits_of(Scope("", ("other",))) is None
    assert policy(max_running=7).limits_of(Scope("", ("other",))) == Limits(7, {})
    assert (policy().no_hand_over_queues, policy(max_running=7).no_hand_over_queues) == (("mail",), ("mail",))


def test_the_slots_of_tenants_are_read_again_and_a_failure_keeps_the_last(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.JOBQUEUE = {"TENANTS": f"{__name__}.given"}
    told = Told()
    found = ClaimPolicy((), None, told)
    for value in ({"acme": 2}, {"acme": 5, "globex": 1}, ValueError("no numbers today"), {"acme": 0}, "acme", None, {}):
        give(value)
        found.invalidate()
        found.refresh()
    assert told.slots == [{"acme": 2}, {"acme": 5, "globex": 1}, {}]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 4
    assert "no numbers today" in errors[0]
    assert all(text.startswith("Cannot read TENANTS; keeping the previous values: ") for text in errors)
    assert "TENANTS returned {'acme': 0}. It must be a mapping of tenants to their slots (1 to 1000)" in errors[1]


def test_a_callable_that_ends_its_process_keeps_the_last_numbers_too(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        raise SystemExit(3)

    settings.JOBQUEUE = {"TENANTS": leave}
    told = Told()
    found = ClaimPolicy((), None, told)
    found.refresh()
    assert told.slots == []


def test_a_callable_that_fails_does_not_prevent_the_read_of_the_pauses(settings: Any) -> None:
    settings.JOBQUEUE = {"TENANTS": given}
    give(ValueError("no"))
    pause_queue("mail")
    assert policy().paused == {"mail"}


def test_a_pause_with_an_end_is_over_for_the_worker_that_reads_it_then() -> None:
    pause_queue("mail", until=timedelta(hours=1))
    found = policy()
    assert not found.is_open("mail")
    Queue.objects.filter(pk="mail").update(paused_until=clock.now() - timedelta(seconds=1))
    age(found)
    found.refresh()
    assert found.is_open("mail")
    assert not Queue.objects.get(pk="mail").paused


def test_patterns_match_the_queues_in_which_a_tenant_has_jobs() -> None:
    for queue in ("mail-a", "mail-b", "mail-bulk", "sms"):
        JobFactory(tenant="acme", queue=queue)
    JobFactory(tenant="globex", queue="sms")
    assert policy("mail-*", "!mail-bulk").scope("acme") == Scope("acme", ("mail-a", "mail-b"))
    assert policy("!mail-*").scope("acme") == Scope("acme", ("sms",))
    assert policy("sms", "mail-b*").scope("acme") == Scope("acme", ("mail-b", "mail-bulk", "sms"))
    assert policy("mail-*").scope("globex") is None
    assert policy("*").scope("acme") == Scope("acme", ())
    pause_queue("mail-a")
    limit_queue("mail-b", 2)
    limit_queue("mail-bulk", 1)
    found = policy("mail-*", "!mail-bulk")
    assert found.scope("acme") == Scope("acme", ("mail-b",))
    assert found.served_limits == Limits(None, {"mail-b": 2})
    assert [found.is_open(queue) for queue in ("mail-a", "mail-b", "mail-new", "mail-bulk", "sms")] == [False, True, True, False, False]


def test_the_names_behind_patterns_are_cached_until_a_notification(
    django_assert_num_queries: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobqueue.worker.claim_policy.NAMES_SECONDS", 60.0)
    found = policy("mail-*")
    JobFactory(queue="mail-a")
    with django_assert_num_queries(1):
        assert [found.scope("") for _ in range(3)] == [Scope("", ("mail-a",))] * 3
    JobFactory(queue="mail-b")
    found.forget_names("")
    assert found.scope("") == Scope("", ("mail-a", "mail-b"))
    JobFactory(queue="mail-c")
    found.invalidate()
    assert found.scope("") == Scope("", ("mail-a", "mail-b", "mail-c"))
    found.paused = frozenset({"mail-b"})
    assert found.scope("") == Scope("", ("mail-a", "mail-c")), "a pause holds for names that are known already, too"
    monkeypatch.setattr("jobqueue.worker.claim_policy.NAMES_SECONDS", 0.0)
    JobFactory(queue="mail-d")
    assert found.scope("") == Scope("", ("mail-a", "mail-c", "mail-d"))
