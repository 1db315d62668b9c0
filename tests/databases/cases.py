"""Tests of that project, as its authors would write them; run by Django's own runner (see `test_second_database`)."""

import contextlib

from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from jobqueue.models import Job
from jobqueue.testing.worker import run_until_idle
from tests.databases.tasks import family, make_group


class InTransactions(TestCase):
    """Run jobs inside of the test's transactions, one for each database."""

    databases = {"default", "jobs"}

    def test_jobs_are_enqueued_and_run(self) -> None:
        """Run what was enqueued."""
        result = make_group.enqueue("of a test")
        family.enqueue()
        assert run_until_idle() >= 2
        assert Job.objects.current.get(pk=result.job_id).status == "SUCCESS"
        assert Group.objects.filter(name="of a test").exists()


class Committed(TransactionTestCase):
    """Run jobs with real commits."""

    databases = {"default", "jobs"}

    def test_a_rollback_of_the_main_database_keeps_the_job(self) -> None:
        """Undo what surrounds the enqueue."""
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            make_group.enqueue("kept")
            _ = 1 / 0
        assert run_until_idle() == 1
