"""The states of a job and the one table of allowed moves between them.

A move leads from one place to another. A place is a status, and for PENDING also what the job waits for. All code
that writes `status` is in ``db/`` or ``managers/``. `check` rejects a move that is not in the table.
"""

from typing import Final

from django.db.models import TextChoices


class Status(TextChoices):
    """The states of a job; the stored value is the name."""

    PENDING = "PENDING", "Pending"
    QUEUED = "QUEUED", "Queued"
    RUNNING = "RUNNING", "Running"
    PAUSED = "PAUSED", "Paused"
    ERROR = "ERROR", "Error"
    SUCCESS = "SUCCESS", "Success"
    CANCELED = "CANCELED", "Canceled"


class WaitingFor(TextChoices):
    """What a PENDING job waits for; empty in every other status."""

    NOTHING = "", "nothing"
    TIME = "time", "its time"
    CHILDREN = "children", "its children"
    TARGET = "target", "its target"


class Recovery(TextChoices):
    """What happens to a job whose worker is lost."""

    REQUEUE = "requeue", "run again"
    HOLD = "hold", "hold for an operator"


LIVE: Final = (Status.PENDING, Status.QUEUED, Status.RUNNING, Status.PAUSED)
"""The states in which a job occupies its unique key."""

ENDED: Final = (Status.SUCCESS, Status.ERROR, Status.CANCELED)
"""The states in which a job has a finish time."""

FINAL: Final = (Status.SUCCESS, Status.CANCELED)
"""The states that a job never leaves."""

Place = tuple[str, str]


def place(status: str, waiting_for: str = "") -> Place:
    """Return the place of a job for the table of moves."""
    return (str(status), str(waiting_for))


NEW: Final[Place] = ("", "")
PENDING_TIME: Final[Place] = (Status.PENDING.value, WaitingFor.TIME.value)
PENDING_CHILDREN: Final[Place] = (Status.PENDING.value, WaitingFor.CHILDREN.value)
PENDING_TARGET: Final[Place] = (Status.PENDING.value, WaitingFor.TARGET.value)
QUEUED: Final[Place] = (Status.QUEUED.value, "")
RUNNING: Final[Place] = (Status.RUNNING.value, "")
PAUSED: Final[Place] = (Status.PAUSED.value, "")
ERROR: Final[Place] = (Status.ERROR.value, "")
SUCCESS: Final[Place] = (Status.SUCCESS.value, "")
CANCELED: Final[Place] = (Status.CANCELED.value, "")

MOVES: Final[dict[Place, frozenset[Place]]] = {
    NEW: frozenset({QUEUED, PENDING_TIME}),
    PENDING_TIME: frozenset({QUEUED, PAUSED, CANCELED}),
    PENDING_CHILDREN: frozenset({QUEUED, PAUSED, CANCELED}),
    PENDING_TARGET: frozenset({QUEUED, RUNNING, PAUSED, CANCELED}),
    QUEUED: frozenset({PENDING_TARGET, RUNNING, ERROR, PAUSED, CANCELED}),
    RUNNING: frozenset({SUCCESS, ERROR, PAUSED, CANCELED, PENDING_TIME, PENDING_CHILDREN, QUEUED}),
    PAUSED: frozenset({QUEUED, PENDING_TIME, PENDING_CHILDREN, CANCELED}),
    ERROR: frozenset({QUEUED, PENDING_TIME, PENDING_CHILDREN, CANCELED}),
    SUCCESS: frozenset(),
    CANCELED: frozenset(),
}
"""For each place, the places to which a job can move."""


def allows(origin: Place, destination: Place) -> bool:
    """Return whether the table has the move; it has none from an unknown place."""
    return destination in MOVES.get(origin, frozenset())


def check(origin: Place, destination: Place) -> None:
    """Raise `ValueError` if the table does not have the move, which is always a bug of jobqueue."""
    if not allows(origin, destination):
        raise ValueError(f"A job cannot move from {origin} to {destination}; allowed: {sorted(MOVES.get(origin, ()))}.")
