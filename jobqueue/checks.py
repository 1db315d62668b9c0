"""Django's system checks for the settings and the databases of jobqueue: ``jobqueue.E001`` and following."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register  # noqa: A004 - Django's name
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, router
from django.utils.connection import ConnectionDoesNotExist
from django.utils.module_loading import import_string

from jobqueue import conf, db
from jobqueue.core import webhook_rules
from jobqueue.core.texts import safe_repr
from jobqueue.declared import imports, registry

DATABASE_BACKEND = "jobqueue.backends.DatabaseBackend"
TESTING = "jobqueue.testing."
SQLITE_OPTIONS = '"OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"}'

ROUTER_HINT = "Put 'jobqueue.routers.JobQueueRouter' first in DATABASE_ROUTERS (docs/databases.md)."

_WAL = re.compile(r"journal_mode\s*[=(]\s*['\"]?wal\b", re.IGNORECASE)


@register()
def check_settings(**_: Any) -> list[CheckMessage]:
    """Report all problems of the settings dict."""
    return [Error(problem.message, hint=problem.hint, id=f"jobqueue.{problem.id}") for problem in conf.problems(conf.configured())]


@register()
def check_authenticator(**_: Any) -> list[CheckMessage]:
    """Report an authenticator of the REST API that cannot be imported or called: every request would fail."""
    try:
        authenticator = conf.api_authenticator()
    except ImproperlyConfigured:
        return []  # check_settings has reported it
    except ImportError as error:
        message = f"API_AUTHENTICATOR cannot be imported: {error}"
    else:
        if authenticator is None or callable(authenticator):
            return []
        message = f"API_AUTHENTICATOR names {safe_repr(authenticator)}, which cannot be called."
    return [Error(message, hint="It must name a callable of the request that returns a user or None.", id="jobqueue.E007")]


@register()
def check_tenants(**_: Any) -> list[CheckMessage]:
    """Report paths in the settings of tenants that cannot be imported: their jobs would fail, or have no slots of their own."""
    messages: list[CheckMessage] = []
    try:
        paths = {"TENANTS": conf.current().tenants, "TENANT_CONTEXT": conf.current().tenant_context}
    except ImproperlyConfigured:
        return []  # check_settings has reported it
    for name, path in paths.items():
        if isinstance(path, str):
            try:
                import_string(path)
            except ImportError as error:
                hint = f"It must be {conf.FIELDS[name].metadata['rule'].text}."
                messages.append(Error(f"{name} is {path!r}, which cannot be imported: {error}", hint=hint, id="jobqueue.E008"))
    return messages


@register()
def check_hooks(**_: Any) -> list[CheckMessage]:
    """Report hooks that cannot be imported or called: users would see no job, retention would skip them, runs would fail."""
    messages: list[CheckMessage] = []
    try:
        settings = conf.current()
        hooks = {"VISIBLE_JOBS": settings.visible_jobs, "ON_STALE": settings.on_stale, "ON_DELETE": settings.on_delete}
        hooks |= {f"RUN_CONTEXTS[{place}]": hook for place, hook in enumerate(settings.run_contexts)}
        hooks["WEBHOOK_SECRET"] = settings.webhook_secret if webhook_rules.is_path(settings.webhook_secret) else None
    except ImproperlyConfigured:
        return []  # check_settings has reported it
    for name, hook in hooks.items():
        try:
            wrong = "" if hook is None or callable(import_string(hook) if isinstance(hook, str) else hook) else "which cannot be called"
        except ImportError as error:
            wrong = f"which cannot be imported: {error}"
        if wrong:
            messages.append(Error(f"{name} is {hook!r}, {wrong}", hint=f"It must be {_rule_of(name)}.", id="jobqueue.E009"))
    return messages


def _rule_of(name: str) -> str:
    text: str = conf.FIELDS[name.partition("[")[0]].metadata["rule"].text
    return text


@register()
def check_streams(**_: Any) -> list[CheckMessage]:
    """Report a limit of streams per user that another setting makes lower if the site is served by WSGI."""
    try:
        settings = conf.current()
    except ImproperlyConfigured:
        return []  # check_settings has reported it
    most, wanted = settings.event_streams_most, settings.event_streams_per_user
    if "EVENT_STREAMS_PER_USER" not in conf.configured() or not most or 0 < wanted <= max(1, most // 2):
        return []
    message = (
        f"EVENT_STREAMS_PER_USER is {wanted}, but under WSGI one user has at most half of the EVENT_STREAMS_MOST streams of a process: "
        f"{max(1, most // 2)}."
    )
    hint = f"Under WSGI, set EVENT_STREAMS_MOST to {2 * wanted or 'more'} and give the server more threads. Under ASGI, ignore it."
    return [Info(message, hint=hint, id="jobqueue.I001")]


@register(deploy=True)
def check_webhook_secret(**_: Any) -> list[CheckMessage]:
    """Report that webhooks would be unsigned, if this process can send webhooks."""
    try:
        secret = conf.current().webhook_secret
    except ImproperlyConfigured:
        return []  # check_settings has reported it
    if secret is not None or webhook_rules.missing_packages():
        return []
    hint = "Set WEBHOOK_SECRET to 'whsec_' and the base64 of 32 random bytes, from the environment (docs/webhooks.md)."
    return [Warning("WEBHOOK_SECRET is not set: receivers of webhooks cannot verify the sender.", hint=hint, id="jobqueue.W006")]


@register(deploy=True)
def check_modules(**_: Any) -> list[CheckMessage]:
    """Report task modules that cannot be imported: workers run without their tasks."""
    registry.discover()
    hint = "Workers log the traceback and skip the module; runworkers --strict ends instead (docs/tasks.md)."
    failed = imports.failures().items()
    return [Warning(f"{name} cannot be imported: {error}", hint=hint, id="jobqueue.W009") for name, error in failed]


@register()
def check_backend(**_: Any) -> list[CheckMessage]:
    """Report that no backend of `TASKS` stores jobs; the backends for tests count as one that does."""
    from jobqueue.backends import DatabaseBackend

    paths = [str(backend.get("BACKEND", "")) for backend in conf.task_backends().values()]
    if any(path.startswith(TESTING) or _is_subclass(path, DatabaseBackend) for path in paths):
        return []
    hint = f'Set TASKS = {{"default": {{"BACKEND": "{DATABASE_BACKEND}"}}}}.'
    return [Warning(f"No backend in TASKS is {DATABASE_BACKEND}, so no task is stored as a job.", hint=hint, id="jobqueue.W005")]


@register()
def check_database(**_: Any) -> list[CheckMessage]:
    """Report options of the job database that make workers fail or wait."""
    try:
        database = _job_database()
    except NotImplementedError as error:
        return [Error(str(error), hint="Route jobqueue to a PostgreSQL or SQLite database (DATABASE_ROUTERS).", id="jobqueue.E006")]
    except ConnectionDoesNotExist:
        return []  # the check of DATABASE reports it (E002)
    options = conf.databases().get(database.alias, {}).get("OPTIONS") or {}
    return sqlite_options(database.alias, options) if database.vendor == "sqlite" else pool_size(database.alias, options)


@register()
def check_routes(**_: Any) -> list[CheckMessage]:
    """Report models of jobqueue that the routers write to another database than `DATABASE`, cannot migrate there, or separate."""
    wanted = conf.job_alias()
    written: dict[str, list[str]] = {}
    for model in apps.get_app_config("jobqueue").get_models():
        written.setdefault(router.db_for_write(model), []).append(model.__name__)
    if set(written) != {wanted} if wanted else len(written) > 1:
        places = "; ".join(f"{', '.join(names)} to {alias!r}" for alias, names in written.items() if alias != wanted)
        rule = f"DATABASE is {wanted!r}" if wanted else "All models of jobqueue must be in one database"
        return [Error(f"{rule}, but DATABASE_ROUTERS send {places}.", hint=ROUTER_HINT, id="jobqueue.E010")]
    if wanted is not None and wanted in conf.databases() and not router.allow_migrate(wanted, "jobqueue"):
        message = f"DATABASE is {wanted!r}, in which DATABASE_ROUTERS do not allow the tables of jobqueue."
        return [Error(message, hint=ROUTER_HINT, id="jobqueue.E010")]
    return []


@register(Tags.database)
def check_journal_mode(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report the journal mode of SQLite if it is not WAL; an in-memory database has none."""
    try:
        database = _job_database()
    except (NotImplementedError, ConnectionDoesNotExist):
        return []
    if database.vendor != "sqlite" or database.alias not in (databases or ()):
        return []
    mode = str(database.rows("PRAGMA journal_mode")[0][0]).lower()
    if mode in ("wal", "memory"):
        return []
    message = f"The SQLite database {database.alias!r} is in journal mode {mode!r}, in which readers and the writer wait for each other."
    return [Warning(message, hint=f"Add {SQLITE_OPTIONS}, or run PRAGMA journal_mode=WAL once.", id="jobqueue.W003")]


@register(Tags.database)
def check_pooler(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report settings that cannot work behind a pooler that gives each transaction another session."""
    try:
        database = _job_database()
        if database.alias not in (databases or ()) or not database.behind_pooler:
            return []
    except (DatabaseError, NotImplementedError, ConnectionDoesNotExist):
        return []  # it cannot be reached, or another check reports it
    return pooled_settings(database.alias, conf.databases().get(database.alias, {}))


@register(Tags.database)
def check_environment(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report settings of the job database that lose texts or values."""
    try:
        database = _job_database()
        wrong = db.unsuitable(database) if database.alias in (databases or ()) else []
    except (DatabaseError, NotImplementedError, ConnectionDoesNotExist):
        return []  # it cannot be reached, or another check reports it
    return [Warning(text, hint=f"{hint} (docs/databases.md).", id="jobqueue.W010") for text, hint in wrong]


@register(Tags.database)
def check_webhooks(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report queues whose webhooks this process cannot send."""
    from jobqueue.models import Queue

    try:
        missing = webhook_rules.missing_packages()
        if not missing or router.db_for_write(Queue) not in (databases or ()) or not Queue.objects.current.exclude(webhook_url="").exists():
            return []
    except DatabaseError:
        return []  # the tables do not exist yet
    message = f"Queues have webhooks, which cannot be sent from here: {', '.join(missing)} cannot be imported."
    return [Warning(message, hint="Install the extra: pip install 'jobqueue[webhooks]'.", id="jobqueue.W007")]


def sqlite_options(alias: str, options: Mapping[str, Any]) -> list[CheckMessage]:
    """Report missing options of an SQLite database."""
    messages: list[CheckMessage] = []
    mode = options.get("transaction_mode")
    if str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        message = (
            f"The SQLite database {alias!r} has transaction_mode {mode!r}: a transaction that reads before it writes fails with "
            '"database is locked" while a worker writes.'
        )
        messages.append(Warning(message, hint=f"Add {SQLITE_OPTIONS}.", id="jobqueue.W001"))
    if not _WAL.search(str(options.get("init_command", ""))):
        message = (
            f"The SQLite database {alias!r} is not put into WAL mode when it is opened, so readers and the writer may wait for each other."
        )
        messages.append(Warning(message, hint=f"Add {SQLITE_OPTIONS}.", id="jobqueue.W002"))
    return messages


def pool_size(alias: str, options: Mapping[str, Any]) -> list[CheckMessage]:
    """Report a connection pool that is too small for the slots of a worker; its services have connections outside of the pool."""
    try:
        of_tenants = _slots_of_tenants()
        slots = conf.current().max_workers + of_tenants
    except ImproperlyConfigured:
        return []
    size, served = db.pool_size(options), db.pooled_slots(options)
    if size is None or served is None or served >= slots:
        return []
    needed = slots + db.WORKER_CONNECTIONS
    message = f"The pool of the database {alias!r} has max_size {size}; {slots} jobs at a time need {needed}."
    hint = f'Set OPTIONS["pool"] = {{"max_size": {needed}}} or more, or lower MAX_WORKERS to {max(served - of_tenants, 1)}.'
    if size - of_tenants < 2:
        hint = f'Set OPTIONS["pool"] = {{"max_size": {needed}}} or more, or lower MAX_WORKERS and the numbers of TENANTS.'
    return [Warning(message, hint=hint, id="jobqueue.W004")]


def pooled_settings(alias: str, settings: Mapping[str, Any]) -> list[CheckMessage]:
    """Report settings of a database that rely on the session, if each transaction has another session."""
    options = settings.get("OPTIONS") or {}
    wrong = {
        'Set "DISABLE_SERVER_SIDE_CURSORS": True': not settings.get("DISABLE_SERVER_SIDE_CURSORS"),
        'Leave "prepare_threshold" out of its OPTIONS': options.get("prepare_threshold") is not None,
        'Leave "assume_role" out of its OPTIONS, and log in as that role': bool(options.get("assume_role")),
        "Connect django-tenants, which sets the search path of a session, to the server directly": (
            "tenants" in str(settings.get("ENGINE", ""))
        ),
    }
    message = f"The database {alias!r} is used through a pooler: session settings are lost after a transaction, or affect other clients."
    return [Warning(message, hint=f"{hint} (docs/pgbouncer.md).", id="jobqueue.W008") for hint, is_wrong in wrong.items() if is_wrong]


def _slots_of_tenants() -> int:
    """Return the number of tenants' own slots; a callable counts as 0, because it may need a database that does not exist yet."""
    numbers = conf.current().tenants
    return sum(numbers.values()) if isinstance(numbers, Mapping) else 0


def _job_database() -> db.Database:
    """Return the database that jobs are written to."""
    from jobqueue.models import Job

    return db.for_alias(router.db_for_write(Job), Job._meta.db_table)


def _is_subclass(path: str, base: type) -> bool:
    """Return whether a dotted path names a subclass; Django reports a path that cannot be imported."""
    try:
        imported = import_string(path)
    except ImportError:
        return False
    return isinstance(imported, type) and issubclass(imported, base)
