"""The answer to a request of an operator for one job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The answer to a request of an operator."""

    DONE = "done"
    REQUESTED = "requested"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request: the job's status now, and the reason if the request was refused."""

    job_id: int
    verdict: Verdict
    status: str
    reason: str = ""

    def __bool__(self) -> bool:
        """Return True unless the request was refused."""
        return self.verdict is not Verdict.REFUSED
