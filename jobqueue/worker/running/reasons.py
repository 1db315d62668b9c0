"""Why a run is to stop, and what its task is told of it."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Say why a run is to stop; a later one in this order beats an earlier one."""

    USER = 1
    SHUTDOWN = 2
    LOST = 3


MESSAGES = {
    Reason.USER: "Job was interrupted by user",
    Reason.SHUTDOWN: "Job was interrupted by shutdown of its worker",
    Reason.LOST: "The lease was lost: another worker may run the job",
}
