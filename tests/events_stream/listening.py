"""A reader of one stream, and what tests stream."""

from __future__ import annotations

import json
from typing import Any

from jobqueue.models import Job, JobEvent

ROOT = "/jobqueue/"


class Listening:
    """Read one stream message by message."""

    def __init__(self, response: Any) -> None:
        assert response.status_code == 200, response.content
        self.response = response
        self._parts = iter(response.streaming_content)
        self._waiting: list[str] = []
        self._pings = 0

    def message(self) -> dict[str, str]:
        """Return the fields of the next message."""
        while not self._waiting:
            whole = ""
            while not whole.endswith("\n\n"):
                whole += next(self._parts).decode()
            self._waiting = whole.strip("\n").split("\n\n")
            self._pings = self._pings + 1 if self._waiting[0].startswith(": ping") else 0
            assert self._pings < 4, "Nothing comes but pings."
        return dict(line.split(": ", 1) for line in self._waiting.pop(0).split("\n"))

    def event(self, name: str) -> dict[str, Any]:
        """Return the next event of this name, with its message's id."""
        while True:
            message = self.message()
            if message.get("event") == name:
                return {**json.loads(message["data"]), "position": message["id"]}

    def rest(self) -> list[str]:
        """Return the names of all events until the server ends the stream."""
        found = []
        try:
            while True:
                found.append(self.message().get("event", ""))
        except StopIteration:
            return [name for name in found if name]


def tell(job: Job, name: str, **data: Any) -> JobEvent:
    return JobEvent.objects.create(job=job, name=name, attempt=1, tenant=job.tenant, target=job.target, data=data or None)


def places(job: Job) -> list[str]:
    return [f"jobs/{job.pk}/events/", f"targets/{job.target}/events/", "events/"]
