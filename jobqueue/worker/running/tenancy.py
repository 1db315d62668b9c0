"""Run the code of a tenant's jobs inside the project's context for that tenant (`TENANT_CONTEXT`)."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.dispatch import Signal

from jobqueue import conf, db, signals
from jobqueue.db import hygiene
from jobqueue.exceptions import TenantContextFailed, is_for_the_process
from jobqueue.models import Job

logger = logging.getLogger("jobqueue")


@contextlib.contextmanager
def inside(tenant: str) -> Iterator[None]:
    """Enter a tenant's context, if there is a tenant; raise `TenantContextFailed` if the context cannot be entered or left."""
    context = _context_of(tenant)
    if context is None:
        yield
        return
    _enter(tenant, context)
    try:
        yield
    finally:
        _exit_tenant(tenant, context)


def for_receivers(tenant: str, signal: Signal) -> contextlib.AbstractContextManager[None]:
    """Return the context of a tenant for the receivers of a signal; a log line alone needs none."""
    return _for_receivers(tenant) if signals.has_receivers(signal) else contextlib.nullcontext()


@contextlib.contextmanager
def _for_receivers(tenant: str) -> Iterator[None]:
    with inside(tenant) if tenant else contextlib.nullcontext(), hygiene.leaving_no_transaction("A receiver of a signal"):
        yield


@contextlib.asynccontextmanager
async def inside_async(tenant: str) -> AsyncIterator[None]:
    """Enter a tenant's context in the thread that runs the coroutine's synchronous calls, since the context is that of a connection.

    Each call into that thread gets a copy of the coroutine's variables, but a variable can be reset only in the copy in which it was
    set. So the context is entered and left in one copy, and the changes are copied at both ends.
    """
    context = _context_of(tenant)
    if context is None:
        yield
        return
    variables = await sync_to_async(_enter_apart)(tenant, context)
    try:
        yield
    finally:
        await sync_to_async(_exit_tenant_in)(tenant, context, variables)


def _enter_apart(tenant: str, context: Any) -> contextvars.Context:
    variables = contextvars.copy_context()
    variables.run(_enter, tenant, context)
    _carry_over(variables)
    return variables


def _exit_tenant_in(tenant: str, context: Any, variables: contextvars.Context) -> None:
    variables.run(_carry_over, contextvars.copy_context())
    try:
        variables.run(_exit_tenant, tenant, context)
    finally:
        _carry_over(variables)


def _carry_over(variables: contextvars.Context) -> None:
    """Set the variables in the current context to their values in `variables`; asgiref then copies them to the coroutine."""
    here = contextvars.copy_context()
    for variable, value in variables.items():
        if variable not in here or here[variable] is not value:
            variable.set(value)


def _context_of(tenant: str) -> Any:
    if not tenant or conf.current().tenant_context is None:
        return None
    try:
        return conf.tenant_context(tenant)
    except BaseException as error:
        if is_for_the_process(error):
            raise
        raise TenantContextFailed(f"The context of tenant {tenant!r} (TENANT_CONTEXT) could not be created: {error!r}") from error


def _enter(tenant: str, context: Any) -> None:
    try:
        context.__enter__()
    except BaseException as error:
        if is_for_the_process(error):
            raise
        raise TenantContextFailed(f"The context of tenant {tenant!r} (TENANT_CONTEXT) could not be entered: {error!r}") from error
    try:
        schema = _missing_schema()
    except BaseException:
        _exit_tenant(tenant, context)
        raise
    if schema:
        _exit_tenant(tenant, context)
        raise TenantContextFailed(f"Tenant {tenant!r} has no schema {schema!r}, so its job cannot run.")


def _missing_schema() -> str:
    database = Job.objects.database
    try:
        return database.missing_schema()
    except Exception as error:
        if not db.is_connection_error(error) or database.connection.in_atomic_block:
            raise
        # The server may have closed this session while the thread was idle: the job must not fail because of that.
        hygiene.close_broken(database.alias)
        return database.missing_schema()


def _exit_tenant(tenant: str, context: Any) -> None:
    try:
        context.__exit__(None, None, None)
    except BaseException as error:
        logger.exception("The context of tenant %r could not be exited; this thread's connections are closed.", tenant)
        hygiene.close_all()
        if is_for_the_process(error):
            raise
        raise TenantContextFailed(f"The context of tenant {tenant!r} (TENANT_CONTEXT) could not be exited: {error!r}") from error
