"""The settings dict: defaults, refusals with the fix named, and overrides."""

import contextlib
import dataclasses
import math
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from jobqueue import conf
from jobqueue.conf import FIELDS, Settings, current, problems, read

POSITIVE = ["POLL_SECONDS", "LEASE_SECONDS", "HEARTBEAT_SECONDS", "SCALE_SECONDS"]
NOT_NEGATIVE = ["SHUTDOWN_GRACE_PERIOD_SECONDS", "INTERRUPT_GRACE_SECONDS", "UNKNOWN_TASK_GRACE_SECONDS"]
COUNTS = ["MIN_WORKERS", "MAX_WORKERS", "MAX_CRASHES"]
NO_NUMBERS = ["3", True, False, math.nan, math.inf, -math.inf, -1, [3], pytest.param(10**5000, id="huge")]
WRONG = [
    *((name, value) for name in POSITIVE for value in (*NO_NUMBERS, 0, 1e10)),
    *((name, value) for name in NOT_NEGATIVE for value in (*NO_NUMBERS, -0.001, 1e10)),
    *((name, value) for name in COUNTS for value in (*NO_NUMBERS, 0, 2.5, 1001)),
    *(("DEFAULT_RECOVERY", value) for value in ("", "Hold", "drop", True, 1, ["hold"])),
    *((name, value) for name in ("QUEUES", "TASK_MODULES") for value in ("mail", [1], [""], [" "], [None], {"mail": 1}, 3, True)),
    *((name, value) for name in ("NOTIFY", "FAST_PATH") for value in (0, 1, "yes", "", [])),
    *(("MAX_RUNNING", value) for value in (*NO_NUMBERS, 2.5, 2**31)),
    *(
        ("TENANTS", value)
        for value in ("acme", "", 3, True, ["acme"], {"acme": 0}, {"acme": 1001}, {"acme": "2"}, {"acme": True}, {"": 1}, {1: 1})
    ),
    *(("TENANT_CONTEXT", value) for value in ("schema_context", "", "a..b", "a b.c", 3, True, {})),
    *(("RUN_CONTEXTS", value) for value in ("contextlib.nullcontext", 3, True, {}, [3], ["scope"], [None], print)),
]


def unwrapped(value: Any) -> Any:
    """Return the value inside a pytest.param."""
    return value.values[0] if hasattr(value, "values") and hasattr(value, "marks") else value


def test_every_setting_has_its_default_when_nothing_is_set() -> None:
    assert read({}) == Settings(
        min_workers=2,
        max_workers=8,
        poll_seconds=0.25,
        lease_seconds=30,
        heartbeat_seconds=2,
        scale_seconds=1,
        shutdown_grace_period_seconds=300,
        interrupt_grace_seconds=2,
        max_crashes=3,
        default_recovery="requeue",
        unknown_task_grace_seconds=300,
        queues=(),
        task_modules=(),
        max_running=None,
        tenants=None,
        tenant_context=None,
        run_contexts=(),
        notify=True,
    )


def test_the_defaults_break_no_rule() -> None:
    defaults = {name: one.default for name, one in FIELDS.items()}
    assert problems(defaults) == []
    assert read(defaults) == Settings()


def test_none_means_not_set() -> None:
    assert read(dict.fromkeys(FIELDS)) == Settings()


def test_values_that_are_false_are_values() -> None:
    zero = {
        "SHUTDOWN_GRACE_PERIOD_SECONDS": 0,
        "INTERRUPT_GRACE_SECONDS": 0,
        "UNKNOWN_TASK_GRACE_SECONDS": 0,
        "NOTIFY": False,
        "QUEUES": [],
    }
    found = read(zero)
    assert (found.shutdown_grace_period_seconds, found.interrupt_grace_seconds, found.unknown_task_grace_seconds) == (0, 0, 0)
    assert found.notify is False


def test_lists_become_tuples_so_that_the_settings_are_hashable() -> None:
    found = read({"QUEUES": ["mail", "default"], "TASK_MODULES": ("shop.jobs",)})
    assert (found.queues, found.task_modules) == (("mail", "default"), ("shop.jobs",))
    hash(found)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        current().max_workers = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"), [pytest.param(name, unwrapped(value), id=f"{name}-{number}") for number, (name, value) in enumerate(WRONG)]
)
def test_a_wrong_value_is_named_with_the_rule(name: str, value: object) -> None:
    (problem,) = problems({name: value})
    assert problem.id == "E002"
    assert problem.message.startswith(f"{name} is ")
    assert problem.hint.startswith(f"It must be {FIELDS[name].metadata['rule'].text}; the default is ")
    with pytest.raises(ImproperlyConfigured, match=f"^{name} is "):
        read({name: value})


@pytest.mark.parametrize("name", [*POSITIVE, *NOT_NEGATIVE])
def test_fractions_of_a_second_are_accepted(name: str) -> None:
    assert problems({"LEASE_SECONDS": 2, "HEARTBEAT_SECONDS": 0.5, name: 1.0}) == []


def test_one_queue_name_alone_is_answered_with_the_list_to_write() -> None:
    (problem,) = problems({"QUEUES": "mail"})
    assert problem.hint.endswith("Write a single name as ['mail'].")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LEASE_SECOND", "LEASE_SECONDS"),
        ("lease_seconds", "LEASE_SECONDS"),
        ("MAX_WORKER", "MAX_WORKERS"),
        ("QUEUE", "QUEUES"),
        ("HEARTBEAT", "HEARTBEAT_SECONDS"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_meant(name: str, meant: str) -> None:
    (problem,) = problems({name: 1})
    assert problem == ("E001", f"Unknown setting {name!r} in JOBQUEUE.", f"Did you mean {meant}?")


@pytest.mark.parametrize("name", ["XYZ", 3, None, ""])
def test_an_unknown_name_like_no_other_is_answered_with_all_names(name: object) -> None:
    (problem,) = problems({name: None})
    assert problem.id == "E001"
    assert all(one in problem.hint for one in FIELDS)


@pytest.mark.parametrize("raw", [[], "MAX_WORKERS", 3, True])
def test_anything_but_a_dict_is_refused(raw: object) -> None:
    (problem,) = problems(raw)
    assert problem.id == "E005"
    assert "must be a dict" in problem.hint


def test_more_least_than_most_workers_are_refused() -> None:
    assert [problem.id for problem in problems({"MIN_WORKERS": 9})] == ["E003"]
    assert [problem.id for problem in problems({"MAX_WORKERS": 1})] == ["E003"]
    assert problems({"MIN_WORKERS": 8}) == []


def test_a_heartbeat_above_half_of_the_lease_is_refused_with_both_ways_out() -> None:
    (problem,) = problems({"HEARTBEAT_SECONDS": 20})
    assert problem.id == "E004"
    assert "set LEASE_SECONDS to 40 or more, or HEARTBEAT_SECONDS to 15.0 or less" in problem.hint
    assert problems({"HEARTBEAT_SECONDS": 15}) == []
    assert problems({"HEARTBEAT_SECONDS": 0.1, "LEASE_SECONDS": 0.5}) == []


@pytest.mark.parametrize(
    "value",
    [
        {"apply_retentoin": {"strategy": "lease"}},
        {"apply_retention": {"strategy": "all"}},
        {"apply_retention": {"strategy": ["lease"]}},
        {"apply_retention": {"rotate_after": 60}},
        {"apply_retention": {"rotate_after_seconds": 0}},
        {"apply_retention": {"rotate_after_seconds": True}},
        {"apply_retention": {"rotate_after_seconds": 60, "strategy": "everyone"}},
        {"apply_retention": 3600},
        {7: {}},
        ["apply_retention"],
    ],
)
def test_duties_with_options_that_cannot_be_meant_are_refused(value: Any) -> None:
    assert [problem.id for problem in problems({"DUTIES": value})] == ["E002"]


def test_a_rotation_below_the_lease_of_duties_is_refused() -> None:
    (problem,) = problems({"DUTIES": {"collect_metrics": {"rotate_after_seconds": 5}}})
    assert problem.id == "E004"
    assert "collect_metrics" in problem.message
    assert problems({"DUTIES": {"collect_metrics": {"rotate_after_seconds": 5}}, "DUTY_LEASE_SECONDS": 4}) == []
    assert problems({"DUTIES": {"collect_metrics": {"strategy": "everyone"}, "apply_retention": {"rotate_after_seconds": 3600}}}) == []


def test_values_that_are_wrong_already_are_not_compared() -> None:
    assert [problem.id for problem in problems({"MIN_WORKERS": "9", "LEASE_SECONDS": -1})] == ["E002", "E002"]


def test_all_problems_are_found_at_once() -> None:
    found = problems({"MAX_WORKER": 1, "NOTIFY": 3, "MIN_WORKERS": 9, "HEARTBEAT_SECONDS": 20})
    assert [problem.id for problem in found] == ["E001", "E002", "E003", "E004"]


def test_the_settings_are_read_once_and_again_after_a_change(settings: Any) -> None:
    settings.JOBQUEUE = {"MAX_WORKERS": 5}
    assert current().max_workers == 5
    assert current() is current()
    settings.JOBQUEUE = {"MAX_WORKERS": 6}
    assert current().max_workers == 6
    settings.JOBQUEUE = None
    assert current() == Settings()
    del settings.JOBQUEUE
    assert current() == Settings()


def test_reading_wrong_settings_says_what_is_wrong_and_the_fix(settings: Any) -> None:
    settings.JOBQUEUE = {"LEASE_SECOND": 3}
    with pytest.raises(ImproperlyConfigured, match=r"Unknown setting 'LEASE_SECOND' in JOBQUEUE\. Did you mean LEASE_SECONDS\?"):
        current()


def test_the_command_line_overrides_what_it_says_and_nothing_else() -> None:
    found = read({"MAX_WORKERS": 16, "QUEUES": ["mail"]}).with_overrides(max_workers=4, lease_seconds=None, queues=["a", "b"])
    assert found == Settings(max_workers=4, queues=("a", "b"))
    assert Settings().with_overrides() == Settings()


def test_overrides_are_judged_with_what_they_are_joined_to() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"MIN_WORKERS is 2, which is above MAX_WORKERS \(1\)"):
        Settings().with_overrides(max_workers=1)
    with pytest.raises(ImproperlyConfigured, match="Did you mean MAX_WORKERS"):
        Settings().with_overrides(max_worker=1)


def test_the_accessors_show_the_projects_own_settings(settings: Any) -> None:
    assert conf.databases() == settings.DATABASES
    assert conf.task_backends() == settings.TASKS
    del settings.TASKS
    assert isinstance(conf.task_backends(), dict)


def two() -> dict[str, int]:
    return {"acme": 2}


@pytest.mark.parametrize("tenants", [{"acme": 2}, two, f"{__name__}.two"], ids=["mapping", "callable", "path"])
def test_the_slots_of_tenants_come_from_a_mapping_or_a_callable_or_its_path(settings: Any, tenants: object) -> None:
    settings.JOBQUEUE = {"TENANTS": tenants}
    assert conf.tenant_slots() == {"acme": 2}


def test_a_callable_is_asked_each_time_and_what_it_says_is_judged(settings: Any) -> None:
    answers: list[Any] = [{"acme": 1}, {}, {"acme": 0}, None]
    settings.JOBQUEUE = {"TENANTS": lambda: answers.pop(0)}
    assert (conf.tenant_slots(), conf.tenant_slots()) == ({"acme": 1}, {})
    for said in ("{'acme': 0}", "None"):
        with pytest.raises(ImproperlyConfigured, match=f"^TENANTS returned {said}. It must be a mapping of tenants to their slots"):
            conf.tenant_slots()


def test_no_tenants_are_no_slots(settings: Any) -> None:
    settings.JOBQUEUE = {}
    assert conf.tenant_slots() == {}


def test_no_job_may_run_is_a_limit(settings: Any) -> None:
    settings.JOBQUEUE = {"MAX_RUNNING": 0}
    assert current().max_running == 0
    assert Settings().with_overrides(max_running=0).max_running == 0


def test_the_context_of_a_tenant_is_made_for_its_name_and_for_jobs_without_one_there_is_none(settings: Any) -> None:
    made: list[str] = []
    settings.JOBQUEUE = {"TENANT_CONTEXT": lambda tenant: made.append(tenant) or contextlib.nullcontext(tenant)}
    with conf.tenant_context("acme") as inside:
        assert inside == "acme"
    with conf.tenant_context("") as inside:
        assert inside is None
    assert made == ["acme"]
    settings.JOBQUEUE = {"TENANT_CONTEXT": "contextlib.nullcontext"}
    with conf.tenant_context("acme") as inside:
        assert inside == "acme"
    settings.JOBQUEUE = {}
    with conf.tenant_context("acme") as inside:
        assert inside is None


def test_the_release_is_a_text_a_callable_or_that_of_the_environment(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_RELEASE", "from the environment")
    for value, wanted in (("2026.11", "2026.11"), (lambda: "a\0b", "a\N{REPLACEMENT CHARACTER}b"), (None, "from the environment")):
        settings.JOBQUEUE = {"RELEASE": value}
        assert conf.release() == wanted
    settings.JOBQUEUE = {"RELEASE": lambda: "x" * 300}
    assert len(conf.release()) == 200
    settings.JOBQUEUE = {"RELEASE": ""}
    with pytest.raises(ImproperlyConfigured, match="text of 1 to 200 characters, or a callable"):
        conf.release()


def test_a_release_that_cannot_be_read_stops_nothing(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise ValueError("no git here")

    settings.JOBQUEUE = {"RELEASE": fail}
    assert conf.release() == ""
    assert "RELEASE cannot be read" in caplog.text
