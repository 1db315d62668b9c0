"""The tasks of the test suite."""

import asyncio
import logging
from typing import Any

from jobqueue import TaskContext, task

logger = logging.getLogger(__name__)


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(unique_key="one")
def add_once(a: int, b: int = 0) -> int:
    return a + b


@task
def fail(text: str = "no") -> None:
    raise ValueError(text)


@task
async def aadd(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


@task(takes_context=True)
def count_slowly(context: TaskContext, seconds: float = 60.0) -> int:
    for percent in range(100):
        context.progress(percent, f"step {percent} of 100")
        context.wait(seconds / 100)
    return 100


@task
def log_in(user: str, password: str, options: dict[str, Any] | None = None) -> None:
    del user, password, options


@task(takes_context=True, max_attempts=1)
def signs_in(context: TaskContext, session: str, word: str) -> None:
    """Store a secret in the metadata, then report, log and raise it; `session` has it in reverse."""
    context.metadata["session_id"] = secret = session[::-1]
    context.save_metadata()
    logger.warning("The session is %s", secret)
    context.progress(50, f"with {secret}")
    raise ValueError(f"{word} {secret}")


@task(schedulable=False, secret=("code",))
def never_scheduled(code: str = "", password: str = "", fail: str = "") -> None:
    """Raise what is given, and keep `code` secret."""
    if fail:
        raise ValueError(fail)
