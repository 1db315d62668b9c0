"""The tasks of the test suite."""

import asyncio
import time

from jobqueue import task


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
def fail(text: str = "no") -> None:
    raise ValueError(text)


@task
async def aadd(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b
