"""Leadership by term: who may acquire, renew, resign and write, on two connections."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from jobqueue import clock
from jobqueue.db import fenced
from jobqueue.duties.leadership import DatabaseClock, Leadership, Term
from jobqueue.exceptions import LeadershipLost
from jobqueue.models import BackgroundJobLease, Job
from tests.factories import JobFactory
from tests.rivals import Rival

NAMES = ("one", "two")


@pytest.fixture
def first(db: Any) -> Leadership:
    return Leadership("worker-1")


@pytest.fixture
def second(db: Any) -> Leadership:
    return Leadership("worker-2")


def holders() -> dict[str, str]:
    return dict(BackgroundJobLease.objects.values_list("job_name", "held_by_worker_id"))


def age(seconds: float, *names: str) -> None:
    """Set the age of the heartbeats of the leases."""
    rows = BackgroundJobLease.objects.filter(job_name__in=names or NAMES)
    rows.update(heartbeat_at=clock.now() - timedelta(seconds=seconds))


def test_the_first_to_contend_leads_and_others_do_not(first: Leadership, second: Leadership) -> None:
    assert sorted(term.name for term in first.contend(NAMES)) == ["one", "two"]
    assert second.contend(NAMES) == []
    assert holders() == {"one": "worker-1", "two": "worker-1"}
    assert first.contend(NAMES) == [], "a leader does not acquire its own lease again"


def test_only_what_a_process_can_do_is_contended_for(first: Leadership, second: Leadership) -> None:
    first.contend(["one"])
    assert [term.name for term in second.contend(["two"])] == ["two"]
    assert holders() == {"one": "worker-1", "two": "worker-2"}


@pytest.mark.parametrize(("seconds", "taken"), [(9, 0), (11, 2)])
def test_a_lease_is_taken_over_once_its_heartbeat_is_old(first: Leadership, second: Leadership, seconds: int, taken: int) -> None:
    first.contend(NAMES)
    age(seconds)
    assert len(second.contend(NAMES)) == taken


@pytest.mark.parametrize(("seconds", "taken"), [(-9, 0), (-3600, 2)])
def test_a_heartbeat_ahead_of_the_clock_keeps_no_worker_from_the_lead(
    first: Leadership, second: Leadership, seconds: int, taken: int
) -> None:
    first.contend(NAMES)
    age(seconds)
    assert len(second.contend(NAMES)) == taken


def test_the_databases_time_is_known_before_the_first_duty_runs(first: Leadership) -> None:
    first.clock.set(clock.now() + timedelta(minutes=20))  # the clock of this process is wrong, and there is no row yet
    first.contend(NAMES)
    assert abs(first.clock.now() - clock.now()) < timedelta(minutes=1)


def test_the_lease_is_as_long_as_the_settings_say(first: Leadership, second: Leadership, settings: Any) -> None:
    settings.JOBQUEUE = {"DUTY_LEASE_SECONDS": 60}
    first.contend(NAMES)
    age(40)
    assert not second.contend(NAMES)


def test_a_renewal_names_its_term_and_so_revives_no_term_that_another_has_followed(first: Leadership, second: Leadership) -> None:
    first.contend(NAMES)
    age(11, "one")
    second.contend(NAMES)
    first.renew({"one": {"mine": 1}, "two": {"mine": 2}})
    assert (first.terms["one"].ended, first.terms["two"].ended) == (True, False)
    assert holders() == {"one": "worker-2", "two": "worker-1"}
    assert [row.metadata for row in BackgroundJobLease.objects.order_by("pk")] == [{}, {"mine": 2}]


def test_a_renewal_may_revive_a_lease_that_no_worker_has_taken(first: Leadership, second: Leadership) -> None:
    first.contend(NAMES)
    age(11)
    first.renew({})
    assert not second.contend(NAMES)


def test_a_second_term_of_the_same_worker_is_another_term(first: Leadership) -> None:
    [old] = first.contend(["one"])
    first.resign(["one"], {})
    BackgroundJobLease.objects.update(metadata={})
    age_of_term = clock.now() + timedelta(seconds=1)
    first.contend(["one"])
    BackgroundJobLease.objects.update(lease_acquired_at=age_of_term)
    again = Leadership("worker-1")
    again.terms = {"one": old}
    old.ended = False
    again.renew({"one": {"old": True}})
    assert old.ended
    assert BackgroundJobLease.objects.get().metadata == {}


def test_resigning_frees_the_duty_at_once_and_keeps_its_report(first: Leadership, second: Leadership) -> None:
    [term] = first.contend(["one"])
    assert first.resign(["one"], {"one": {"runs": 7}}) == 1
    assert term.ended
    [new] = second.contend(["one"])
    assert new.metadata == {"runs": 7}


def test_a_late_resignation_ends_no_other_workers_term(first: Leadership, second: Leadership) -> None:
    first.contend(["one"])
    age(11)
    second.contend(["one"])
    assert first.resign(["one"], {"one": {"late": True}}) == 0
    row = BackgroundJobLease.objects.get()
    assert (row.held_by_worker_id, row.metadata) == ("worker-2", {})


def test_a_duty_that_an_operator_released_is_noticed_at_the_next_check(first: Leadership) -> None:
    [term] = first.contend(["one"])
    assert BackgroundJobLease.objects.release("one") == "worker-1"
    first.contend([])
    assert term.ended


def test_a_term_that_was_acquired_without_our_knowing_is_given_back(first: Leadership, second: Leadership) -> None:
    first.contend(["one"])
    first.terms.clear()  # the commit was done, its answer lost with the connection
    assert not second.contend(["one"])
    first.contend(["one"])
    assert holders() == {"one": ""}
    assert second.contend(["one"])


def test_an_invalid_value_in_the_row_is_no_metadata(first: Leadership) -> None:
    BackgroundJobLease.objects.create(job_name="one", metadata=[1, 2])
    [term] = first.contend(["one"])
    assert term.metadata == {}


# The fence


def write(term: Term) -> None:
    with fenced(term.check), Job.objects.database.atomic():
        JobFactory()


def test_a_leader_writes_and_one_whose_term_is_over_does_not(first: Leadership, second: Leadership) -> None:
    [term] = first.contend(["one"])
    write(term)
    age(11)
    [new] = second.contend(["one"])
    with pytest.raises(LeadershipLost, match="taken over"):
        write(term)
    write(new)
    assert Job.objects.count() == 2
    assert term.ended


def test_a_term_that_was_not_renewed_in_time_is_not_trusted_although_the_row_is_unchanged(first: Leadership) -> None:
    [term] = first.contend(["one"])
    term.renewed -= 8.1
    assert not term.trusted
    with pytest.raises(LeadershipLost, match="renewed in time"):
        write(term)
    assert not Job.objects.exists()
    first.renew({})
    write(term)


def test_the_fence_is_asked_once_for_each_transaction_and_not_for_savepoints(db: Any) -> None:
    asked = []
    with fenced(lambda: asked.append(1)):
        for _ in range(2):
            with Job.objects.database.atomic(), Job.objects.database.atomic():
                pass
    with Job.objects.database.atomic():
        pass
    assert asked == [1, 1], "outside of its block nothing is asked"


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_no_worker_takes_over_during_a_leaders_write_and_the_leader_renews(rival: Rival) -> None:
    first, second = Leadership("worker-1"), Leadership("worker-2")
    [term] = first.contend(["one"])
    with fenced(term.check), Job.objects.database.atomic():
        rival.do(age, 11)
        assert rival.do(second.contend, ["one"]) == []
        rival.do(first.renew, {})
        rival.do(age, 11)
        JobFactory()
    assert len(rival.do(second.contend, ["one"])) == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_transaction_whose_process_is_stopped_is_ended_by_the_server(rival: Rival) -> None:
    [term] = Leadership("worker-1").contend(["one"])
    with fenced(term.check), Job.objects.database.atomic():
        assert connection.cursor().execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("5s",)
    assert connection.cursor().execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_locked_is_passed_over(rival: Rival) -> None:
    BackgroundJobLease.objects.add(NAMES)
    with transaction.atomic():
        BackgroundJobLease.objects.select_for_update().get(pk="one")
        terms = rival.do(Leadership("worker-2").contend, NAMES)
    assert [term.name for term in terms] == ["two"]


@pytest.mark.django_db(transaction=True)
def test_of_many_that_contend_at_once_one_leads(rival: Rival) -> None:
    from tests.rivals import together

    leaderships = [Leadership(f"worker-{number}") for number in range(4)]
    won = together(*[lambda one=one: [term.name for term in one.contend(NAMES)] for one in leaderships])
    assert sorted(name for names in won for name in names) == ["one", "two"]


def test_the_clock_returns_the_databases_time() -> None:
    clock = DatabaseClock()
    told = clock.now() + timedelta(days=3)
    clock.set(told)
    assert told <= clock.now() < told + timedelta(minutes=1)


def test_each_renewal_returns_the_databases_time(first: Leadership) -> None:
    first.contend(NAMES)
    for told in ({}, {"one": {"mine": 1}}):
        first.clock.set(clock.now() + timedelta(minutes=20))
        first.renew(told)
        assert abs(first.clock.now() - clock.now()) < timedelta(minutes=1)


def test_a_renewal_is_one_statement_also_where_a_term_has_ended(first: Leadership, django_assert_num_queries: Any) -> None:
    terms = {term.name: term for term in first.contend(NAMES)}
    BackgroundJobLease.objects.release("one")
    with django_assert_num_queries(1):
        first.renew({})
    assert (terms["one"].ended, terms["two"].ended) == (True, False)


def test_a_renewal_is_of_the_current_terms(first: Leadership) -> None:
    first.contend(["one"])
    first.renew({})
    first.contend(["two"])
    age(5)
    first.renew({})
    found = BackgroundJobLease.objects.filter(heartbeat_at__gt=clock.now() - timedelta(seconds=4))
    assert sorted(found.values_list("pk", flat=True)) == ["one", "two"]
