"""What can be a task: one function per path, found by importing its module, and run when it is called."""

import functools
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import markcoroutinefunction
from django.test import override_settings

from jobqueue import InvalidOption, JobTask, compat, enqueue_job, exponential, pipeline, task
from jobqueue.declared import registry
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples

django_task: Any = compat.module("").task
NAME = "declared_for_a_test"
HEAD = f"from jobqueue import task as jobqueues\nfrom {compat.PACKAGE} import task as djangos\n"


class Modules:
    """Write modules, import them, and forget them at the end."""

    def __init__(self, place: Path) -> None:
        self.path = place / f"{NAME}.py"

    def write(self, text: str) -> Path:
        self.path.write_text(text)
        importlib.invalidate_caches()
        return self.path

    def load(self, text: str) -> types.ModuleType:
        self.write(text)
        return importlib.import_module(NAME)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Modules(tmp_path)
    sys.modules.pop(NAME, None)
    for path in [path for path in registry.paths() if path.startswith(f"{NAME}.")]:
        registry.forget(path)


class Sender:
    """A class with a method."""

    def send(self) -> None:
        """Do nothing."""

    def __call__(self) -> None:
        """Do nothing."""


def _nested() -> Any:
    def inner() -> None:
        """Do nothing."""

    return inner


def _yields() -> Iterator[int]:
    yield 1


async def _ayields() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (lambda value: value, "lambdas of a module share one path"),
        (_nested(), "defined inside of another function"),
        (Sender.send, "defined in a class"),
        (Sender().send, "a bound method"),
        (Sender(), "a Sender is not a plain function"),
        (Sender, "a type is not a plain function"),
        (functools.partial(samples.undeclared), "a functools.partial has no path"),
        (functools.cache(samples.undeclared), "is not a plain function"),
        (len, "is not a plain function"),
        (samples.plain, "a task already"),
        (_yields, "a generator"),
        (_ayields, "a generator"),
    ],
)
@pytest.mark.parametrize("backend", ["default", "immediate", "dummy"])
@pytest.mark.parametrize("decorator", [task, django_task])
def test_an_invalid_task_is_refused_with_the_reason(decorator: Any, backend: str, func: Any, reason: str) -> None:
    before = registry.paths()
    with pytest.raises(InvalidOption, match=reason) as refused:
        decorator(backend=backend)(func)
    assert isinstance(refused.value, compat.InvalidTask)
    assert registry.paths() == before


def test_a_pipeline_of_a_lambda_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidOption, match="lambdas of a module share one path"):
        pipeline(phases=[samples.undeclared])(lambda context: None)


def test_the_decorator_refuses_a_lambda_with_any_backend() -> None:
    other = override_settings(TASKS={"default": {"BACKEND": f"{compat.PACKAGE}.backends.dummy.DummyBackend"}})
    with other, pytest.raises(InvalidOption, match="lambdas of a module share one path"):
        task(lambda: None)


@pytest.mark.parametrize("decorator", ["jobqueues", "djangos"])
@pytest.mark.parametrize("backend", ["default", "immediate", "dummy"])
def test_a_second_function_of_a_path_is_refused_naming_both_places(modules: Modules, decorator: str, backend: str) -> None:
    declaration = f"@{decorator}(backend={backend!r})\ndef send(): return {{}}\n"
    text = HEAD + declaration.format(1) + declaration.format(2)
    with pytest.raises(InvalidOption) as refused:
        modules.load(text)
    assert f"Two tasks have the path '{NAME}.send': {modules.path}:3 and {modules.path}:5." in str(refused.value)


def test_two_functions_behind_one_decorator_are_refused_naming_their_own_places(modules: Modules) -> None:
    wrap = "import functools\ndef wrap(f):\n    @functools.wraps(f)\n    def wrapper(*a): return f(*a)\n    return wrapper\n"
    with pytest.raises(InvalidOption, match=rf":8 and .*{NAME}\.py:11\."):
        modules.load(HEAD + wrap + "@jobqueues\n@wrap\ndef send(): pass\n" * 2)


WRAP = """
import functools
def named(name):
    def decorate(f):
        @functools.wraps(f)
        def wrapper(*args): return name
        return wrapper
    return decorate
"""


@pytest.mark.parametrize("second", ["named('second')(base)", "named('first')(base)", "base"])
@pytest.mark.parametrize("decorator", ["jobqueues", "djangos"])
def test_two_tasks_around_one_function_are_refused(modules: Modules, decorator: str, second: str) -> None:
    text = f"def base(): pass\na = {decorator}()(named('first')(base))\nb = {decorator}()({second})\n"
    with pytest.raises(InvalidOption, match=rf"'{NAME}.base': the function at .*{NAME}.py:11, wrapped in two ways"):
        modules.load(HEAD + WRAP + text)
    assert registry.find(f"{NAME}.base").func() == "first"  # type: ignore[union-attr]


def test_a_module_that_wraps_a_function_of_another_may_be_reloaded(modules: Modules) -> None:
    base = "from tests.tasks_layer.samples import unwrapped\n"
    module = modules.load(HEAD + WRAP + base + "a = jobqueues()(named('first')(unwrapped))\n")
    try:
        modules.write(HEAD + WRAP + base + "a = jobqueues()(named('edited')(unwrapped))\n")
        importlib.reload(module)
        assert registry.find("tests.tasks_layer.samples.unwrapped").func() == "edited"  # type: ignore[union-attr]
        del sys.modules[NAME]
        modules.load(HEAD + WRAP + base + "a = jobqueues()(named('imported again')(unwrapped))\n")
        assert registry.find("tests.tasks_layer.samples.unwrapped").func() == "imported again"  # type: ignore[union-attr]
    finally:
        registry.forget("tests.tasks_layer.samples.unwrapped")


def test_a_reload_declares_again_and_its_function_is_the_one_that_runs(modules: Modules) -> None:
    module = modules.load(HEAD + "@jobqueues\ndef send(): return 1\n")
    again = importlib.reload(module)
    found = registry.find(f"{NAME}.send")
    assert found is not None
    assert found.func is again.send.func
    modules.write(HEAD + "# a line more\n\n@jobqueues\ndef send(): return 22\n")
    edited = importlib.reload(module)
    found = registry.find(f"{NAME}.send")
    assert found is not None
    assert found.func is edited.send.func
    assert found.func() == 22


def test_a_copy_with_other_options_is_the_same_task() -> None:
    before = registry.find(samples.plain.module_path)
    samples.plain.using(priority=7)
    assert registry.find(samples.plain.module_path) is before


def test_one_function_is_not_declared_twice_with_options_that_a_run_reads_from_the_declaration() -> None:
    with pytest.raises(
        InvalidOption, match=r"samples\.py:\d+: tests.tasks_layer.samples.flaky is declared twice, with different values of backoff"
    ):
        task(max_attempts=3, backoff=exponential(), retry_on=(OSError,))(samples.flaky.func)


@functools.wraps(samples.undeclared)
def _returns_a_coroutine() -> Any:
    return _body()


async def _body() -> str:
    raise AssertionError("it is never awaited")


_returns_a_coroutine.__qualname__ = "_returns_a_coroutine"
_returns_a_coroutine.__module__ = __name__
unawaited = task(_returns_a_coroutine)


@functools.wraps(samples.undeclared)
def _marked() -> Any:
    return _answer()


async def _answer() -> str:
    return "awaited"


_marked.__qualname__, _marked.__module__ = "_marked", __name__
marked = task(markcoroutinefunction(_marked))


@task
def returns_a_generator() -> Any:
    return (number for number in range(3))


@pytest.mark.django_db(transaction=True)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("unusual", "text"),
    [
        (unawaited, "The task returned a coroutine, which is not awaited: the body of the coroutine did not run. Declare"),
        (returns_a_generator, "The task returned a generator, whose body did not run. Return list(...)"),
    ],
)
@pytest.mark.parametrize("backend", ["default", "immediate"])
def test_a_task_that_returns_what_has_not_run_ends_in_error_and_says_so(unusual: JobTask, text: str, backend: str) -> None:
    result = unusual.using(backend=backend).enqueue()
    if backend == "default":
        run_until_idle()
        result.refresh()
        assert text in Job.objects.get(pk=result.job_id).message
    assert result.status == "FAILED"
    assert text in result.errors[0].traceback


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("backend", ["default", "immediate"])
def test_a_function_that_is_marked_as_a_coroutine_function_is_awaited(backend: str) -> None:
    result = marked.using(backend=backend).enqueue()
    if backend == "default":
        run_until_idle()
        result.refresh()
    assert result.return_value == "awaited"


@pytest.mark.django_db
def test_a_task_is_found_by_its_path_however_it_was_declared() -> None:
    assert enqueue_job(samples.plain.module_path, 1).task.func is samples.plain.func
