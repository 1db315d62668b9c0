"""The page about PgBouncer says what the code does, and the tests run with what it advises."""

import re
from pathlib import Path

from jobqueue import conf
from jobqueue.duties.builtin import builtin
from jobqueue.duties.promote_due_jobs import CLOSE_PAUSE_SECONDS
from jobqueue.worker import claim_policy
from jobqueue.worker.claiming.listener import OFF
from jobqueue.worker.process.parts import Parts
from tests import pooler

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "pgbouncer.md").read_text()


def test_the_line_in_the_log_is_the_workers() -> None:
    assert f"INFO {OFF}\n" in PAGE


def test_the_tests_run_with_what_the_page_advises() -> None:
    advised = dict(re.findall(r"^(\w+) = (\w+)(?: +;.*)?$", PAGE.partition("[pgbouncer]\n")[2].partition("```")[0], re.MULTILINE))
    assert {"pool_mode", "query_wait_timeout", "server_login_retry"} < set(advised)
    assert advised == {name: str(pooler.SETTINGS[name]) for name in advised}


def test_the_latencies_are_the_codes() -> None:
    settings = conf.Settings()
    assert f"within `POLL_SECONDS` ({settings.poll_seconds:g}) |" in PAGE
    assert f"within `HEARTBEAT_SECONDS` ({settings.heartbeat_seconds:g}) |" in PAGE
    assert f"within {CLOSE_PAUSE_SECONDS:g} s, and `POLL_SECONDS`" in PAGE
    assert f"| at once | within {claim_policy.READ_SECONDS:g} s |" in PAGE


def test_a_worker_has_as_many_connections_as_the_page_says() -> None:
    from jobqueue.worker.base import DatabaseService
    from jobqueue.worker.claiming.listener import Listener

    services = {kind for kind in DatabaseService.__subclasses__() if kind.__module__.startswith("jobqueue.worker.")} - {Listener}
    kinds = [kind for kind in services if kind.__name__.lower() in {*Parts.__annotations__, "finisher"}]
    threads = len(kinds) + 1  # there are two finishers
    duties = [make() for make in builtin(lambda: None, lambda lost: None, lambda: 0.0).values()]
    most = threads + 1 + sum(not duty.is_short for duty in duties)
    assert f"| {threads}, one for its short [duties](duties.md), and one for each long duty: {most} at most |" in PAGE
    assert f"(`MAX_WORKERS` + {most})" in PAGE
