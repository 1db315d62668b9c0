"""Read the settings dict ``JOBQUEUE`` once, into a typed object.

If a setting is absent or None, its default applies. ``problems`` describes wrong settings; the system checks and
``runworkers`` show them. Reading wrong settings raises ImproperlyConfigured.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from jobqueue.core import duty_rules, masking, queue_rules, setting_problems, webhook_rules
from jobqueue.core import retention_rules as retained
from jobqueue.core.setting_rules import (
    AUTHENTICATOR,
    BOOLEAN,
    COUNT,
    HOOK,
    HOOKS,
    MAX_RELEASE,
    NOT_NEGATIVE,
    POSITIVE,
    SERVICE,
    SETUP,
    TENANT_CONTEXT,
    TENANTS,
    VISIBLE,
    Rule,
    is_release,
    is_slots,
    number,
    texts,
    whole,
)
from jobqueue.core.texts import clean, safe_repr

NAME = "JOBQUEUE"
logger = logging.getLogger("jobqueue")
RELEASE_VARIABLE = "JOBQUEUE_RELEASE"
ALIAS = Rule(
    "the alias of a database in DATABASES, or None to follow DATABASE_ROUTERS",
    lambda value: isinstance(value, str) and value in settings.DATABASES,
)


def _setting(default: Any, rule: Rule, **more: Any) -> Any:
    """Return a field with its default and its rule."""
    return field(default=default, metadata={"rule": rule}, **more)


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of all settings; ``docs/settings.md`` describes each of them."""

    min_workers: int = _setting(2, COUNT)
    max_workers: int = _setting(8, COUNT)
    poll_seconds: float = _setting(0.25, POSITIVE)
    lease_seconds: float = _setting(30, POSITIVE)
    heartbeat_seconds: float = _setting(2, POSITIVE)
    duty_lease_seconds: float = _setting(10, POSITIVE)
    duty_heartbeat_seconds: float = _setting(2, POSITIVE)
    duties: Any = _setting(None, Rule(duty_rules.TEXT, duty_rules.is_duties))
    scale_seconds: float = _setting(1, POSITIVE)
    shutdown_grace_period_seconds: float = _setting(300, NOT_NEGATIVE)
    interrupt_grace_seconds: float = _setting(2, NOT_NEGATIVE)
    max_crashes: int = _setting(3, COUNT)
    default_recovery: str = _setting("requeue", Rule('"requeue" or "hold"', lambda value: value in ("requeue", "hold")))
    default_timeout_seconds: float | None = _setting(None, POSITIVE._replace(text=f"{POSITIVE.text}, or None for no limit"))
    timeout_grace_seconds: float = _setting(10, NOT_NEGATIVE)
    hard_timeout_grace_seconds: float = _setting(10, POSITIVE)
    unknown_task_grace_seconds: float = _setting(300, NOT_NEGATIVE)
    service: str | None = _setting(None, SERVICE)
    queues: tuple[str, ...] = _setting((), texts(queue_rules.TEXT))
    task_modules: tuple[str, ...] = _setting((), texts("a list of dotted module paths"))
    max_running: int | None = _setting(None, whole("a whole number, 0 or more, or None for no limit", lambda value: 0 <= value < 2**31))
    tenants: Any = _setting(None, TENANTS)
    tenant_context: Any = _setting(None, TENANT_CONTEXT)
    run_contexts: tuple[Any, ...] = _setting((), HOOKS)
    database: str | None = _setting(None, ALIAS)
    release: Any = _setting(None, Rule(f"text of 1 to {MAX_RELEASE} characters, or a callable that returns it", is_release))
    notify: bool = _setting(True, BOOLEAN)
    fast_path: bool = _setting(True, BOOLEAN)
    fresh_connections: bool = _setting(False, BOOLEAN)
    api_authenticator: Any = _setting(None, AUTHENTICATOR)
    public_id_keys: tuple[str, ...] = _setting((), texts("a list of secret random texts, the current key first"), repr=False)
    secret_names: tuple[str, ...] = _setting((), texts("a list of names"))
    visible_jobs: Any = _setting(None, VISIBLE)
    stale_after: Any = _setting(None, Rule(retained.TIMES_TEXT, retained.is_times))
    delete_after: Any = _setting(None, Rule(retained.TIMES_TEXT, retained.is_times))
    queue_retention: Any = _setting(None, Rule(retained.QUEUES_TEXT, retained.is_by_queue))
    on_stale: Any = _setting(None, HOOK)
    on_delete: Any = _setting(None, HOOK)
    event_log: str = _setting("lifecycle", Rule('"all", "lifecycle" or "none"', lambda value: value in ("all", "lifecycle", "none")))
    job_log: str = _setting("info", Rule('"none", "warning" or "info"', lambda value: value in ("none", "warning", "info")))
    event_ping_seconds: float = _setting(15, POSITIVE)
    event_stream_seconds: float = _setting(300, number("a number above 0, at most 86400 (a day)", lambda value: 0 < value <= 86_400))
    event_streams_most: int = _setting(10, whole("a whole number from 0 (no streams at all) to 1000", lambda value: 0 <= value <= 1000))
    event_streams_per_user: int = _setting(20, whole("a whole number from 0 (no limit) to 10000", lambda value: 0 <= value <= 10_000))
    event_delete_after: Any = _setting(2_592_000, Rule(retained.TIME_TEXT, retained.is_time_or_never))
    webhook_secret: Any = _setting(None, Rule(webhook_rules.SECRETS_TEXT, webhook_rules.is_secrets), repr=False)
    webhook_allowed_hosts: tuple[str, ...] = _setting((), Rule(webhook_rules.HOSTS_TEXT, webhook_rules.is_hosts))
    webhook_https_only: bool = _setting(False, BOOLEAN)
    webhook_signed_only: bool = _setting(False, BOOLEAN)
    webhook_timeout_seconds: float = _setting(10, Rule(webhook_rules.TIMEOUT_TEXT, webhook_rules.is_timeout))
    webhook_max_attempts: int = _setting(8, COUNT)
    webhook_retry_seconds: tuple[float, ...] = _setting(webhook_rules.DELAYS, Rule(webhook_rules.DELAYS_TEXT, webhook_rules.is_delays))
    delivery_grace_seconds: float = _setting(5, NOT_NEGATIVE)
    process_setup: str = _setting("django.setup", SETUP)

    def with_overrides(self, **values: Any) -> "Settings":
        """Return the settings with some replaced, as by the command line; None replaces nothing. Raise ImproperlyConfigured."""
        current_values = {field.name.upper(): getattr(self, field.name) for field in fields(self)}
        return read(current_values | {name.upper(): value for name, value in values.items() if value is not None})


FIELDS: dict[str, "Field[Any]"] = {field.name.upper(): field for field in fields(Settings)}


def read(raw: Mapping[str, Any]) -> Settings:
    """Return the settings of a dict as written in the settings module; raise ImproperlyConfigured with the first problem."""
    for problem in problems(raw):
        raise ImproperlyConfigured(f"{problem.message} {problem.hint}")
    given: dict[str, Any] = {
        FIELDS[name].name: tuple(value) if isinstance(value, list) else value for name, value in raw.items() if value is not None
    }
    return Settings(**given)


@functools.cache
def current() -> Settings:
    """Return the project's settings; raise ImproperlyConfigured if they are wrong."""
    return read(configured())


def calls_for_tenant_slots() -> bool:
    """Return whether `TENANTS` is a callable."""
    value = current().tenants
    return value is not None and not isinstance(value, Mapping)


def service() -> str:
    """Return the name of the service that this process belongs to; "" if it has none."""
    return current().service or ""


def scoped(name: str) -> str:
    """Return the name of a duty in this service."""
    return f"{name}@{own}" if (own := service()) else name


@functools.cache
def release() -> str:
    """Return the release of the project that this process runs; empty if it is not set. A callable is called once."""
    value = current().release
    try:
        value = value() if callable(value) else value
    except Exception:
        logger.warning("RELEASE cannot be read; the release of this process is not shown.", exc_info=True)
        return ""
    return clean(str(value or os.environ.get(RELEASE_VARIABLE, "")))[:MAX_RELEASE]


def tenant_slots() -> dict[str, int]:
    """Return the current slots of each tenant that has slots of its own; raise ImproperlyConfigured for a wrong value."""
    value = _called(current().tenants) or {}
    value = value() if callable(value) else value
    if not is_slots(value):
        raise ImproperlyConfigured(f"TENANTS returned {safe_repr(value)}. It must be {TENANTS.text}.")
    return dict(value)


def tenant_context(tenant: str) -> contextlib.AbstractContextManager[Any]:
    """Return the project's context manager for a tenant; without a tenant or a setting, one that does nothing."""
    context = _called(current().tenant_context) if tenant else None
    return contextlib.nullcontext() if context is None else context(tenant)


def run_contexts() -> Iterator[Callable[[Any], Any]]:
    """Yield the factories of the project's context managers around each run; raise ImportError for a wrong path."""
    return (_called(path) for path in current().run_contexts)


def api_authenticator() -> Callable[[Any], Any] | None:
    """Return the callable that authenticates requests to the REST API; None if the session does."""
    function: Callable[[Any], Any] | None = _called(current().api_authenticator)
    return function


def visible_jobs() -> Callable[[Any], Any] | None:
    """Return the callable that selects the jobs that a user may see; None if users see all jobs."""
    function: Callable[[Any], Any] | None = _called(current().visible_jobs)
    return function


def webhook_secret() -> Any:
    """Return the secrets of webhooks, or the callable that returns them."""
    value = current().webhook_secret
    return import_string(value) if webhook_rules.is_path(value) else value


def retention() -> tuple[retained.Rules, retained.Rules]:
    """Return the rules for when ended jobs become stale, and for when they are deleted."""
    settings = current()
    given = {"STALE_AFTER": settings.stale_after, "DELETE_AFTER": settings.delete_after}
    stale, delete = (retained.rules(name, value, settings.queue_retention) for name, value in given.items())
    return stale, delete


@functools.cache
def public_id_keys() -> tuple[str | bytes, ...]:
    """Return the keys of public ids, the current one first."""
    return current().public_id_keys or (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


def event_age() -> float | None:
    """Return the age in seconds at which events are deleted; None if they are kept."""
    return retained.seconds_or_never(current().event_delete_after)


def retention_hooks() -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """Return the hooks for jobs that become stale and for jobs that are deleted; None for a hook that is not set."""
    return _called(current().on_stale), _called(current().on_delete)


def _called(value: Any) -> Any:
    return import_string(value) if isinstance(value, str) else value


def configured() -> Any:
    """Return the value of the project's settings module, unchecked."""
    return {} if (value := getattr(settings, NAME, None)) is None else value


def databases() -> Mapping[str, Mapping[str, Any]]:
    """Return the project's ``DATABASES``."""
    databases: Mapping[str, Mapping[str, Any]] = settings.DATABASES
    return databases


@functools.cache
def secret_names() -> tuple[str, ...]:
    """Return the names that ``SECRET_NAMES`` adds; wrong settings raise nothing here, because secrets are masked in any case."""
    raw = configured()
    value = raw.get("SECRET_NAMES") if isinstance(raw, Mapping) else None
    return tuple(origin for origin in value if isinstance(origin, str)) if isinstance(value, list | tuple) else ()


masking.names_from(secret_names)


def job_alias() -> str | None:
    """Return the alias that ``DATABASE`` names, or None; errors in other settings are ignored."""
    raw = configured()
    value = raw.get("DATABASE") if isinstance(raw, Mapping) else None
    return value if isinstance(value, str) else None


def settings_module() -> str | None:
    """Return the name of the project's settings module; None if the settings were made in code."""
    name: str | None = settings.SETTINGS_MODULE
    return name


def uses_time_zones() -> bool:
    """Return whether the project's times have zones (``USE_TZ``)."""
    return bool(settings.USE_TZ)


def session_cookie_name() -> str:
    """Return the name of the project's session cookie."""
    return str(settings.SESSION_COOKIE_NAME)


def task_backends() -> Mapping[str, Mapping[str, Any]]:
    """Return the project's ``TASKS``."""
    backends: Mapping[str, Mapping[str, Any]] = getattr(settings, "TASKS", {})
    return backends


def problems(raw: Any) -> list[setting_problems.SettingProblem]:
    """Return all problems of a settings dict."""
    return setting_problems.problems(NAME, raw, FIELDS)


def _forget(*, setting: str, **_: Any) -> None:
    """Clear the caches after a test has changed settings."""
    if setting in (NAME, "SECRET_KEY", "SECRET_KEY_FALLBACKS"):
        for cached in (current, release, public_id_keys, secret_names):
            cached.cache_clear()


setting_changed.connect(_forget, dispatch_uid="jobqueue.conf")
