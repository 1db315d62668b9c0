"""A pooler is recognized by its made-up process id; jobqueue then uses nothing that needs a session. The tests start a pooler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection

from jobqueue import checks, conf, db
from jobqueue.db.fast_path import plans
from jobqueue.db.pooler import ATTRIBUTE
from jobqueue.duties.promote_due_jobs import CLOSE_PAUSE_SECONDS, MAX_SECONDS, PromoteDueJobs
from jobqueue.models import Job
from jobqueue.worker.claiming import listener
from jobqueue.worker.claiming.listener import POOLER_SECONDS, Listener
from jobqueue.worker.wakeups import Signal, Wakeups
from tests import pooler
from tests.pooler import PROGRAM, PgBouncer
from tests.rivals import Rival

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(PROGRAM is None, reason="needs the Debian package pgbouncer"),
]
Lead = Callable[[bool], None]


@pytest.fixture(scope="module")
def bouncer(django_db_setup: Any) -> Iterator[PgBouncer]:
    """Provide a pooler with one session, for which clients wait at most one second."""
    place = pooler.way_past(connection.settings_dict)
    made = PgBouncer(place["HOST"], int(place["PORT"] or 5432), default_pool_size=1, min_pool_size=1, query_wait_timeout=1)
    yield made
    made.remove()


@pytest.fixture
def lead(bouncer: PgBouncer) -> Iterator[Lead]:
    """Return what leads this thread's connection through the pooler, or past it."""
    usual = connection.settings_dict

    def lead(through: bool) -> None:
        place = {"HOST": "127.0.0.1", "PORT": str(bouncer.port)} if through else pooler.way_past(usual)
        connection.close()
        connection.settings_dict = {**usual, **place, "OPTIONS": {**usual["OPTIONS"]}}

    yield lead
    connection.close()
    connection.settings_dict = usual


@pytest.mark.parametrize("through", [True, False])
def test_a_pooler_is_seen_and_the_server_itself_is_not_taken_for_one(lead: Lead, through: bool) -> None:
    lead(through)
    assert Job.objects.database.behind_pooler is through


def test_a_connection_is_queried_once_and_the_next_one_again(lead: Lead) -> None:
    lead(True)
    assert Job.objects.database.behind_pooler
    setattr(connection.connection, ATTRIBUTE, False)
    assert not Job.objects.database.behind_pooler
    connection.close()
    assert Job.objects.database.behind_pooler


@pytest.mark.fast_path
@pytest.mark.parametrize("through", [True, False])
def test_plans_are_kept_on_a_session_only(lead: Lead, through: bool) -> None:
    lead(through)
    plans.keep(connection.settings_dict["OPTIONS"])
    connection.ensure_connection()
    assert plans.are_kept(connection) is not through


def test_the_listener_stops_behind_a_pooler_logs_it_once_and_starts_without_one(
    lead: Lead, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ROUND_SECONDS", 0.01)
    caplog.set_level(logging.INFO, "jobqueue")
    looks: list[str | None] = []
    wakeups = Wakeups()
    wakeups.subscribe(Signal.WORK, looks.append)
    one = Listener("worker-1", [], wakeups, lambda *_: None)
    lead(True)
    assert [one.turn(), one.turn()] == [POOLER_SECONDS] * 2
    assert not one.healthy
    assert connection.connection is None, "it keeps no connection that it does not use"
    lead(False)
    assert one.turn() == 0.0
    assert one.healthy
    assert looks == [None]
    assert [message.partition(":")[0] for message in caplog.messages] == ["LISTEN is off", "LISTEN is on"]


@pytest.mark.parametrize(("through", "longest"), [(True, CLOSE_PAUSE_SECONDS), (False, MAX_SECONDS)])
def test_the_promotion_of_due_jobs_polls_if_no_notification_is_possible(lead: Lead, through: bool, longest: float) -> None:
    lead(through)
    duty = PromoteDueJobs()
    assert duty.pause_seconds == longest


@pytest.mark.long
def test_a_pooler_that_has_no_session_to_give_is_an_outage(lead: Lead, rival: Rival) -> None:
    lead(True)
    place = connection.settings_dict

    def follow() -> None:
        connection.close()
        connection.settings_dict = place

    rival.do(follow)
    with rival.transaction():
        rival.do(Job.objects.count)  # and so it has the only session
        with pytest.raises(Exception, match="query_wait_timeout") as caught:
            Job.objects.count()
    assert db.is_outage(caught.value)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"DISABLE_SERVER_SIDE_CURSORS": False}, "DISABLE_SERVER_SIDE_CURSORS"),
        ({"OPTIONS": {"prepare_threshold": 5}}, "prepare_threshold"),
        ({"OPTIONS": {"assume_role": "jobs"}}, "assume_role"),
        ({"ENGINE": "django_tenants.postgresql_backend"}, "django-tenants"),
    ],
)
def test_a_setting_that_relies_on_sessions_is_reported_with_its_fix(wrong: dict[str, Any], hint: str) -> None:
    right = {"ENGINE": "django.db.backends.postgresql", "DISABLE_SERVER_SIDE_CURSORS": True, "OPTIONS": {}}
    assert checks.pooled_settings("default", right) == []
    [found] = checks.pooled_settings("default", {**right, **wrong})
    assert hint in str(found.hint)


@pytest.mark.parametrize(("through", "expected"), [(True, ["jobqueue.W008"]), (False, [])])
def test_such_settings_are_reported_behind_a_pooler_only(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, through: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(conf, "databases", lambda: {"default": {"DISABLE_SERVER_SIDE_CURSORS": False}})
    lead(through)
    found = run_checks(tags=["database"], databases=["default"])
    assert [one.id for one in found if str(one.id).startswith("jobqueue.")] == expected
    assert checks.check_pooler(databases=[]) == []
