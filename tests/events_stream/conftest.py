"""Fixtures: a server with a user's session, and the end of this process's own reader."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client as Browser

from jobqueue.events import stream as streams
from jobqueue.events.stream import hub
from jobqueue.models import Job
from tests.events_stream.listening import ROOT, Listening
from tests.events_stream.server import Server
from tests.factories import JobFactory


@pytest.fixture(autouse=True)
def no_reader() -> Iterator[None]:
    """End the streams and the reader of this process: its connection would keep the test's database."""
    gc.collect()  # ends the streams of other tests, which requested them and read nothing of them
    yield
    assert hub.close()


@pytest.fixture
def viewer(transactional_db: Any) -> Any:
    """Make a user who may see jobs."""
    user = get_user_model().objects.create_user("viewer")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobqueue", codename="view_job"))
    return user


@pytest.fixture
def browser(viewer: Any) -> Browser:
    """Log the user in."""
    made = Browser()
    made.force_login(viewer)
    return made


@pytest.fixture
def start(transactional_db: Any, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start real servers on the test's database."""
    started: list[Server] = []

    def make(**options: Any) -> Server:
        started.append(Server(tmp_path / f"server-{len(started)}.log", **options))
        return started[-1].ready()

    yield make
    for one in started:
        one.clean_up()


@pytest.fixture
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the reader query often, and report silence soon."""
    monkeypatch.setattr(streams, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(streams, "IDLE_POLL_SECONDS", 0.02)
    settings.JOBQUEUE = {"EVENT_PING_SECONDS": 2}


@pytest.fixture
def listen(browser: Browser) -> Iterator[Callable[..., Listening]]:
    opened: list[Any] = []

    def make(path: str, client: Browser = browser, **headers: str) -> Listening:
        opened.append(client.get(path if path.startswith("/") else f"{ROOT}{path}", headers=headers))
        return Listening(opened[-1])

    yield make
    for response in opened:
        response.close()
    assert len(hub) == 0


@pytest.fixture
def job() -> Job:
    made: Job = JobFactory(target="customer:7", running=True, task="tests.tasks.add", queue="default")
    return made
