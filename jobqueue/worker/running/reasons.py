"""The reasons why a run is to stop, and the messages that its task gets."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """The reason why a run is to stop; a later reason in this order overrides an earlier one."""

    USER = 1
    SHUTDOWN = 2
    LOST = 3


MESSAGES = {
    Reason.USER: "Job was interrupted by user",
    Reason.SHUTDOWN: "Job was interrupted by shutdown of its worker",
    Reason.LOST: "The lease was lost: another worker may run the job",
}
