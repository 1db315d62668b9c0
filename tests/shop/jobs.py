"""A module of tasks that no worker imports by itself."""

from jobqueue import task


@task(max_attempts=3)
def found_late(value: int) -> int:
    return value


@task
async def afound_late(value: int) -> int:
    return value
