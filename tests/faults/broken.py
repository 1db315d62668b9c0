"""A module of tasks that fails at import, after it has declared one."""

from jobqueue import task


@task
def declared_before() -> str:
    return HALF  # type: ignore[name-defined] # noqa: F821 - the module ends before it is defined


raise RuntimeError("password=hunter2: no such module")
