"""Tasks of these tests."""

from typing import Any

from jobqueue import TaskContext, fixed, task

calls: list[Any] = []


@task
def plain(*values: Any, **named: Any) -> Any:
    calls.append(values)
    return [*values, named] if named else list(values)


@task(
    priority=5,
    queue_name="reports",
    max_attempts=3,
    backoff=fixed(10),
    retry_on=(OSError,),
    recovery="hold",
    unique_key="one",
    metadata={"who": "me"},
)
def full() -> None:
    """A task with every option."""


@task(unique_key=lambda number, *, kind="a": f"{kind}:{number}")
def keyed(number: int, *, kind: str = "a") -> str:
    return f"{kind}:{number}"


@task(max_attempts=3, backoff=fixed(3600), retry_on=(OSError,))
def flaky(succeed_at: int) -> int:
    calls.append(succeed_at)
    if len(calls) < succeed_at:
        raise OSError(f"try {len(calls)}")
    return len(calls)


@task(takes_context=True, metadata={"count": 1})
def talks(context: TaskContext) -> dict[str, Any]:
    context.progress(40, "halfway")
    context.wait(3600)
    context.metadata["count"] += 1
    context.save_metadata()
    context.progress(99.5)
    context.raise_if_cancelled()
    return {"attempt": context.attempt, "job_id": context.job_id, "token": context.lease_token, "cancelled": context.cancelled}


@task(takes_context=True)
async def atalks(context: TaskContext) -> str:
    context.progress(10)
    return str(context.task_result.status)


def undeclared() -> str:
    """A function that only one test declares."""
    return "undeclared"


def unwrapped() -> None:
    """A function that modules of a test wrap and declare."""


def unknown_to_workers() -> None:
    """A function that no worker has."""


@task
def spawns() -> None:
    plain.enqueue("child")
    raise ValueError("after the enqueue")


@task(takes_context=True, secret=["account"])
def discreet(context: TaskContext, account: str) -> None:
    """Report and raise texts with secrets."""
    context.progress(10, f"reads {account}")
    raise ValueError(f"no such account: {account}")
