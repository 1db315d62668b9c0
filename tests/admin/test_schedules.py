"""The admin of schedules: the list, the form with its hidden secrets, the verbs, and who may do what."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from jobqueue import clock
from jobqueue.models import Job, Schedule, ScheduleTick
from tests.admin.conftest import Login, choose, told
from tests.factories import ScheduleFactory
from tests.unchecked import unchecked

pytestmark = pytest.mark.django_db
LIST = "/admin/jobqueue/schedule/"
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
VERBS = ("run_now", "enable", "disable")
EVIL = "<img src=x onerror=alert(1)>'\"&"
FORM = {
    "name": "nightly",
    "task": "tests.tasks.add",
    "args": "[1]",
    "kwargs": '{"b": 2}',
    "cron": "0 3 * * *",
    "time_zone": "Europe/Berlin",
    "missed": "once",
    "missed_limit": "100",
    "enabled": "on",
}


@pytest.fixture
def editor(login: Login) -> Client:
    return login("view_job", "view_schedule", "add_schedule", "change_schedule", "delete_schedule", *(f"{verb}_schedule" for verb in VERBS))


def page(schedule: Schedule, what: str = "change") -> str:
    return f"{LIST}{schedule.pk}/{what}/"


def act(schedule: Schedule, verb: str) -> str:
    return f"{LIST}{schedule.pk}/act/{verb}/"


def errors(response: Any) -> str:
    return json.dumps(response.context["adminform"].form.errors.get_json_data())


def stored(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


# The list


def test_one_with_neither_cron_nor_interval_is_shown_as_never_enqueued(editor: Client) -> None:
    schedule = ScheduleFactory(name="bad")
    with unchecked():
        Schedule.objects.filter(pk=schedule.pk).update(cron="", interval_seconds=None)
        assert "never: it has neither cron nor interval" in editor.get(LIST).text


@pytest.mark.usefixtures("shown_in_utc")
def test_the_list_shows_next_and_last_time_and_the_last_error(editor: Client) -> None:
    ScheduleFactory(name="mail", cron="", interval_seconds=3600, next_at=clock.now() + timedelta(minutes=30))
    ScheduleFactory(name="nightly", source="code", time_zone="Europe/Berlin", last_at=NOON, last_job_id=7, last_error="no such task")
    ScheduleFactory(name="old", source="code", retired_at=NOON)
    ScheduleFactory(name="paused", enabled=False)
    text = editor.get(LIST).content.decode()
    for part in ("every 3,600 s", "in 29 min", "Europe/Berlin", "2026-06-01 12:00:00 UTC", "job 7</a>", "no such task", "in code"):
        assert part in text
    for badge in ("Enabled", "Failing", "Retired", "Disabled"):
        assert f"</span> {badge}</span>" in text
    assert editor.get(LIST, {"q": "mail"}).context["cl"].result_count == 1
    assert editor.get(LIST, {"q": "a\0b"}).status_code == 200
    assert [editor.get(LIST, {"o": number}).status_code for number in (1, 2, 5)] == [200, 200, 200]


def test_hostile_texts_are_escaped(editor: Client) -> None:
    one = ScheduleFactory(name=EVIL, task=f"tests.{EVIL}", last_error=EVIL, target=EVIL, kwargs={EVIL: EVIL}, cron=EVIL, time_zone=EVIL)
    for address in (LIST, page(one), page(one, "history"), page(one, "delete")):
        response = editor.get(address)
        assert response.status_code == 200
        assert "<img src=x" not in response.content.decode()


# The form


def test_a_schedule_is_made_whose_first_time_lies_ahead(editor: Client) -> None:
    assert editor.post(f"{LIST}add/", FORM).url == LIST
    one = stored()
    assert (one.source, one.task, one.args, one.kwargs, one.enabled) == ("admin", "tests.tasks.add", [1], {"b": 2}, True)
    assert one.next_at == one.timing.after(clock.now())
    assert LogEntry.objects.get().is_addition()


@pytest.mark.parametrize(
    ("wrong", "field", "text"),
    [
        ({"task": "os.system"}, "task", "os.system is not one of the available choices"),
        ({"task": ""}, "task", "required"),
        ({"args": "{"}, "args", "This is not valid JSON"),
        ({"args": "[" * 100_000}, "args", "This is not valid JSON"),
        ({"args": "9" * 5000}, "args", "This is not valid JSON"),
        ({"args": "7"}, "kwargs", "args is a int; it must be a list"),
        ({"kwargs": "[]"}, "kwargs", "kwargs is a list; it must be an object"),
        ({"kwargs": '{"b": NaN}'}, "kwargs", "is the float nan"),
        ({"kwargs": '{"b": "\\u0000"}'}, "kwargs", "NUL character"),
        ({"kwargs": '{"c": 2}'}, "kwargs", "got an unexpected keyword argument 'c'. It takes: a, b."),
        ({"kwargs": '{"b": "********"}'}, "kwargs", "kwargs.b is hidden as ********: write its value again"),
        ({"cron": "0 0 30 2 *"}, "cron", "Bad day-of-month"),
        ({"cron": "soon"}, "cron", "Wrong number of fields"),
        ({"cron": ""}, "cron", "either cron or an interval, but none is given"),
        ({"interval_seconds": "60"}, "interval_seconds", "both are given"),
        ({"cron": "", "interval_seconds": "0"}, "interval_seconds", "The interval is 0"),
        ({"cron": "", "interval_seconds": str(2**31)}, "interval_seconds", "than or equal to 2147483647|The interval is"),
        ({"time_zone": "Europe/Berlni"}, "time_zone", "did you mean 'Europe/Berlin'"),
        ({"name": "a\0b"}, "name", "Null characters"),
        ({"priority": "101"}, "__all__", "priority is 101"),
        ({"missed_limit": "0"}, "__all__", "missed_limit is 0"),
        ({"target": "a/b"}, "__all__", "target is 'a/b'"),
    ],
)
def test_values_from_which_no_job_can_be_enqueued_are_refused_at_their_field(
    editor: Client, wrong: dict[str, str], field: str, text: str
) -> None:
    response = editor.post(f"{LIST}add/", {**FORM, **wrong})
    assert response.status_code == 200
    found = response.context["adminform"].form.errors
    assert list(found) == [field]
    assert any(part in " ".join(found[field]) for part in text.split("|"))
    assert not Schedule.objects.exists()


def test_all_mistakes_of_a_form_are_shown_at_once(editor: Client) -> None:
    wrong = {"name": "a\x00b", "cron": "soon", "time_zone": "Mars", "kwargs": '{"nothing": 1}', "priority": "1000", "missed_limit": "0"}
    found = editor.post(f"{LIST}add/", {**FORM, **wrong}).context["adminform"].form.errors
    assert {*found} == {"name", "cron", "time_zone", "kwargs", "__all__"}
    assert len(found["__all__"]) == 2


def test_a_schedule_that_is_disabled_has_no_next_times(editor: Client) -> None:
    text = editor.get(page(ScheduleFactory(cron="0 12 1 7 *", enabled=False))).content.decode()
    assert "none: it is disabled" in text
    assert "-07-01 12:00:00" not in text


@pytest.mark.long
def test_a_name_that_is_taken_is_reported(editor: Client) -> None:
    ScheduleFactory(name="nightly")
    assert "already exists" in errors(editor.post(f"{LIST}add/", FORM))


def test_other_times_are_counted_from_now_and_other_arguments_do_not_change_them(editor: Client) -> None:
    one = ScheduleFactory(name="nightly", cron="0 3 * * *", time_zone="Europe/Berlin", next_at=NOON, last_at=NOON, last_error="no")
    assert editor.post(page(one), {**FORM, "args": "[5]"}).status_code == 302
    assert (stored().args, stored().next_at, stored().last_at, stored().last_error) == ([5], NOON, NOON, "")
    editor.post(page(one), {**FORM, "args": "[5]", "cron": "0 4 * * *"})
    assert stored().next_at > clock.now()
    assert [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")] == ["Changed args and kwargs.", "Changed Cron."]


def test_a_form_that_was_open_for_long_overwrites_nothing_of_the_leaders_nor_the_pause(editor: Client) -> None:
    one = ScheduleFactory(name="nightly", cron="0 3 * * *", time_zone="Europe/Berlin", enabled=False, next_at=NOON, last_job_id=7)
    editor.post(page(one), {**FORM, "enabled": "on", "last_job_id": "1", "next_at_0": "2030-01-01"})
    assert (stored().enabled, stored().next_at, stored().last_job_id) == (False, NOON, 7)


def test_the_next_five_times_are_shown_in_the_zone_and_in_utc(editor: Client) -> None:
    one = ScheduleFactory(cron="0 12 1 7 *", time_zone="Europe/Berlin")
    text = editor.get(page(one)).content.decode()
    assert text.count("-07-01 12:00:00 CEST = ") == 5
    assert text.count("-07-01 10:00:00 UTC") == 5
    assert "cannot be read" in editor.get(page(ScheduleFactory(cron="soon"))).content.decode()


def test_a_preview_shows_the_times_of_the_values_in_the_form_and_saves_nothing(editor: Client) -> None:
    text = editor.post(f"{LIST}preview/", {**FORM, "cron": "0 12 1 7 *"}).content.decode()
    assert (text.count("-07-01 12:00:00 CEST"), text.count("-07-01 10:00:00 UTC")) == (5, 5)
    assert editor.post(f"{LIST}preview/", {"interval_seconds": "60", "time_zone": "UTC"}).content.decode().count(":00 UTC<") == 5
    for wrong in ({"cron": EVIL}, {"interval_seconds": "9" * 5000}, {"time_zone": EVIL}, {"cron": ""}, {"cron": "a\0b"}):
        response = editor.post(f"{LIST}preview/", {**FORM, **wrong})
        assert response.status_code == 200
        assert "errornote" in response.content.decode()
        assert EVIL not in response.content.decode()
    assert editor.get(f"{LIST}preview/").status_code == 200
    assert not Schedule.objects.exists()


# Secrets


def secret_one() -> Schedule:
    schedule = ScheduleFactory(name="nightly", task="tests.tasks.log_in", args=["joe", "hunter2"])
    schedule.kwargs = {"options": {"api_key": "k-123", "url": "https://u:pw-456@host/", "tries": 3}}
    schedule.save()
    return schedule


SECRETS = ("hunter2", "k-123", "pw-456")


@pytest.mark.long
def test_secrets_are_hidden_wherever_people_read_them(editor: Client, login: Login) -> None:
    one = secret_one()
    jobs = login("view_schedule")
    code = ScheduleFactory(name="code", source="code", task=one.task, args=one.args, kwargs=one.kwargs)
    odd = ScheduleFactory(name="odd", args={"password": "hunter2"}, kwargs=[{"password": "k-123"}])
    for client, row in ((editor, one), (jobs, one), (editor, code), (editor, odd), (jobs, odd)):
        for address in (LIST, page(row), page(row, "history")):
            response = client.get(address)
            assert response.status_code == 200
            assert not [secret for secret in SECRETS if secret in response.content.decode()]
    assert "tries" in editor.get(page(one)).content.decode()


def test_a_value_that_is_left_masked_keeps_its_stored_value(editor: Client) -> None:
    one = secret_one()
    form = editor.get(page(one)).context["adminform"].form
    data = {
        **FORM,
        "task": one.task,
        "args": form.initial["args"],
        "kwargs": form.initial["kwargs"],
        "cron": "* * * * *",
        "time_zone": "UTC",
    }
    editor.post(page(one), data)
    assert (stored().args, stored().kwargs) == (one.args, one.kwargs)
    assert LogEntry.objects.get().get_change_message() == "No fields changed."
    editor.post(page(one), {**data, "args": '["ann", "new"]'})
    assert (stored().args, stored().kwargs) == (["ann", "new"], one.kwargs)


FEEDS = {"feeds": [{"url": "https://a.example", "token": "token-a"}, {"url": "https://b.example", "token": "token-b"}], "tries": 3}
HIDDEN_FEEDS = {"feeds": [{"url": "https://a.example", "token": "********"}, {"url": "https://b.example", "token": "********"}], "tries": 3}


def change_kwargs(editor: Client, change: Any, options: Any = FEEDS) -> Any:
    """Return the answer to a form whose options were changed as they are shown, with masks in place of the secrets."""
    one = ScheduleFactory(name="nightly", task="tests.tasks.log_in", args=["joe", "hunter2"], kwargs={"options": options})
    form = editor.get(page(one)).context["adminform"].form
    kwargs = json.loads(form.initial["kwargs"])
    change(kwargs["options"])
    return editor.post(page(one), {**FORM, "task": one.task, "args": '["joe", "new"]', "kwargs": json.dumps(kwargs)})


A, B = FEEDS["feeds"]  # type: ignore[misc]
SOURCE = {"source": {"url": "https://a.example", "login": {"password": "pw-a"}}, "sender": {"token": "token-x"}, "tries": 3}
TWINS = {"feeds": [{"token": "token-a"}, {"token": "token-b"}], "pairs": [["Authorization", "token-c"]]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "places", "options"),
    [
        (lambda it: it["feeds"][1].update(url="https://evil.example"), ["feeds[1].token"], FEEDS),
        (lambda it: [one.update(url="https://evil.example") for one in it["feeds"]], ["feeds[0].token", "feeds[1].token"], FEEDS),
        (lambda it: it["feeds"][0].update(proxy="evil"), ["feeds[0].token"], FEEDS),
        (lambda it: it["feeds"][0].update(tries=4), ["feeds[0].token"], FEEDS),
        (lambda it: it["feeds"][0].pop("url"), ["feeds[0].token"], FEEDS),
        (lambda it: it["feeds"].append({"url": "https://evil.example", "token": "********"}), ["feeds[2].token"], FEEDS),
        (lambda it: it["feeds"].append(dict(it["feeds"][0])), ["feeds[0].token", "feeds[2].token"], FEEDS),
        (lambda it: it["feeds"].pop(0), ["feeds[0].token"], TWINS),
        (lambda it: it.update(copy="********"), ["copy"], FEEDS),
        (lambda it: it["feeds"][0].update(note="********"), ["feeds[0].note"], FEEDS),
        (lambda it: it.update(moved=it.pop("feeds")), ["moved[0].token", "moved[1].token"], FEEDS),
        (lambda it: it.update(proxy="https://evil.example"), ["feeds[0].token", "feeds[1].token"], FEEDS),
        (lambda it: it.update(host="evil"), ["feeds[0].token", "feeds[1].token"], FEEDS),
        (lambda it: it["pairs"].append(["X-Forward", "https://evil.example"]), ["feeds[0].token", "feeds[1].token"], TWINS),
        (lambda it: it["pairs"][0].append("x"), ["pairs[0][1]"], TWINS),
        (lambda it: it["source"].update(url="https://evil.example"), ["source.login.password", "sender.token"], SOURCE),
        (lambda it: it.update(copy=it["source"]["login"]), ["copy.password"], SOURCE),
        (lambda it: it.update(server={"name": "evil"}), ["source.login.password", "sender.token"], SOURCE),
        (lambda it: it["hosts"].append("evil"), ["sender.token"], {"hosts": ["a"], "sender": {"token": "token-x"}}),
        (lambda it: it.pop("host"), ["token"], {"host": "a", "token": "token-x"}),
    ],
)
def test_each_hidden_secret_that_a_change_could_send_elsewhere_is_named_at_once(
    editor: Client, change: Any, places: list[str], options: Any
) -> None:
    answer = change_kwargs(editor, change, options)
    [error] = answer.context["adminform"].form.errors["kwargs"]
    are, again = (" is", "its value") if len(places) == 1 else (" are", "their values")
    named, sign, _ = error.partition(f"{are} hidden as ********: write {again} again, since")
    assert sign
    assert sorted(named.split(", ")) == sorted(f"kwargs.options.{place}" for place in places)
    assert stored().kwargs == {"options": options}


@pytest.mark.parametrize(
    ("change", "options", "after"),
    [
        (lambda it: it["feeds"].pop(0), FEEDS, {**FEEDS, "feeds": [B]}),
        (lambda it: it["feeds"].reverse(), FEEDS, {**FEEDS, "feeds": [B, A]}),
        (lambda it: it["feeds"].append({"url": "x"}), FEEDS, {**FEEDS, "feeds": [A, B, {"url": "x"}]}),
        (lambda it: it["feeds"].insert(0, {"url": "x", "token": "new"}), FEEDS, {**FEEDS, "feeds": [{"url": "x", "token": "new"}, A, B]}),
        (
            lambda it: it["feeds"][1].update(note="see https://x.example"),
            FEEDS,
            {**FEEDS, "feeds": [A, {**B, "note": "see https://x.example"}]},
        ),
        (lambda it: (it["feeds"].pop(0), it["feeds"][0].update(note="b")), FEEDS, {**FEEDS, "feeds": [{**B, "note": "b"}]}),
        (lambda it: it["feeds"][0].update(url="u", token="new"), FEEDS, {**FEEDS, "feeds": [{"url": "u", "token": "new"}, B]}),
        (lambda it: it.update(tries=4, note="less"), FEEDS, {**FEEDS, "tries": 4, "note": "less"}),
        (lambda it: it.pop("tries"), FEEDS, {"feeds": [A, B]}),
        (lambda it: it.update(tries=4), SOURCE, {**SOURCE, "tries": 4}),
        (lambda it: it["feeds"].reverse(), TWINS, TWINS),
    ],
)
def test_a_hidden_secret_stays_if_the_change_cannot_send_it_elsewhere(editor: Client, change: Any, options: Any, after: Any) -> None:
    answer = change_kwargs(editor, change, options)
    assert answer.status_code == 302, errors(answer)
    assert stored().kwargs == {"options": after}


def test_another_receiver_in_the_positional_arguments_gets_no_secret_of_the_named_ones(editor: Client) -> None:
    one = ScheduleFactory(name="nightly", task="tests.tasks.log_in", args=["https://a.example", "pw"], kwargs={"options": {"token": "t"}})
    data = {**FORM, "task": one.task, "kwargs": '{"options": {"token": "********"}}'}
    answer = editor.post(page(one), {**data, "args": '["https://evil.example", "********"]'})
    found = answer.context["adminform"].form.errors
    assert found["args"][0].startswith("args[1] is hidden")
    assert found["kwargs"][0].startswith("kwargs.options.token is hidden")
    answer = editor.post(
        page(one), {**data, "args": '["https://a.example", "********"]', "kwargs": '{"options": {"url": "https://evil.example"}}'}
    )
    assert {*answer.context["adminform"].form.errors} == {"args"}


@pytest.mark.long
def test_arguments_that_are_nested_too_deeply_are_refused(editor: Client) -> None:
    for depth in (90, 200, 400, 900):
        deep = f'{{"b": {"[" * depth}{"]" * depth}}}'
        assert editor.post(f"{LIST}add/", {**FORM, "name": f"n{depth}", "kwargs": deep}).status_code in (200, 302)
        changed = ScheduleFactory(task="tests.tasks.add", args=[1], kwargs=json.loads(deep) if depth < 400 else {"b": 1})
        assert editor.post(page(changed), {**FORM, "name": changed.name, "kwargs": deep.replace("[]", "[1]")}).status_code in (200, 302)


def test_masked_values_are_kept_if_only_another_object_was_changed(editor: Client) -> None:
    one = ScheduleFactory(name="nightly", task="tests.tasks.log_in", args=["joe", "hunter2"], kwargs={"options": FEEDS})
    form = editor.get(page(one)).context["adminform"].form
    data = {**FORM, "task": one.task, "args": form.initial["args"]}
    editor.post(page(one), {**data, "kwargs": json.dumps({"options": {**HIDDEN_FEEDS, "tries": 4}})})
    assert stored().kwargs == {"options": {**FEEDS, "tries": 4}}
    answer = editor.post(page(one), {**data, "args": '["ann", "********"]'})
    assert "args[1] is hidden as ********" in errors(answer)


def test_a_hidden_secret_does_not_go_to_another_task(editor: Client) -> None:
    one = secret_one()
    form = editor.get(page(one)).context["adminform"].form
    data = {**FORM, "task": "tests.tasks.fail", "args": form.initial["args"], "kwargs": form.initial["kwargs"]}
    response = editor.post(page(one), data)
    assert "write its value again, since the task" in errors(response)
    assert stored().task == one.task


@pytest.mark.long
def test_a_task_that_is_gone_stays_to_be_seen_and_is_not_saved(editor: Client) -> None:
    one = ScheduleFactory(name="nightly", task="tests.tasks.gone")
    assert "tests.tasks.gone (not registered)" in editor.get(page(one)).content.decode()
    assert stored().task == "tests.tasks.gone"


# Verbs


@pytest.mark.parametrize("selected", ["x", "#1", "9" * 30])
def test_a_selection_that_is_no_number_is_a_bad_request(editor: Client, selected: str) -> None:
    assert editor.post(LIST, {"action": "run_now_selected", "index": 0, "_selected_action": [selected]}).status_code == 400


def test_a_schedule_is_run_disabled_and_enabled_from_its_page_and_the_list(editor: Client) -> None:
    one = ScheduleFactory(name="nightly", next_at=NOON)
    assert told(editor.post(act(one, "run_now"))) == [
        f'Schedule nightly: <a href="/admin/jobqueue/job/{Job.objects.get().pk}/change/">job {Job.objects.get().pk}</a> was enqueued.'
    ]
    assert editor.post(act(one, "disable")).url == page(one)
    assert not stored().enabled
    assert told(editor.post(act(one, "disable")))[-1] == "Schedule nightly: Disabled (no change)."
    editor.post(act(one, "enable"))
    assert stored().enabled
    assert stored().next_at > clock.now()
    for action, number in (("disable_selected", 0), ("enable_selected", 2), ("run_now_selected", 2)):
        choose(editor, action, one, ScheduleFactory(name=action), url=LIST)
        assert Schedule.objects.filter(name__in=["nightly", action], enabled=True).count() == number
    assert Job.objects.count() == 3
    assert LogEntry.objects.filter(object_id=one.pk).count() == 7


def test_a_verb_that_fails_is_reported_and_enqueues_nothing(editor: Client) -> None:
    gone, disabled = ScheduleFactory(name="gone", task="tests.tasks.gone"), ScheduleFactory(name="bad", cron="soon", enabled=False)
    assert "No registered task has the path" in told(editor.post(act(gone, "run_now")))[0]
    assert "cannot be read" in told(editor.post(act(disabled, "enable")))[-1]
    assert (Job.objects.count(), stored("bad").enabled, LogEntry.objects.count()) == (0, False, 0)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_its_own_permission_and_needs_a_post_with_a_token(login: Login, verb: str) -> None:
    one = ScheduleFactory(enabled=verb != "enable")
    others = [f"{each}_schedule" for each in VERBS if each != verb]
    assert login("view_schedule", "change_schedule", *others).post(act(one, verb)).status_code == 403
    assert login(f"{verb}_schedule").post(act(one, verb)).status_code == 403  # not even a view
    assert login("view_schedule", f"{verb}_schedule", enforce_csrf_checks=True).post(act(one, verb)).status_code == 403
    assert Client().post(act(one, verb)).status_code == 302
    may = login("view_schedule", f"{verb}_schedule")
    assert may.get(act(one, verb)).url == page(one)
    choose(login("view_schedule", *others), f"{verb}_selected", one, url=LIST)
    assert (Job.objects.count(), stored(one.name).enabled) == (0, verb != "enable")
    assert may.get(page(one)).content.decode().count("/act/") == 1
    assert may.post(act(one, verb)).status_code == 302
    assert LogEntry.objects.count() == 1


def test_a_user_with_only_the_view_permission_changes_nothing(login: Login) -> None:
    one, viewer = ScheduleFactory(name="nightly"), login("view_schedule")
    assert viewer.get(page(one)).status_code == 200
    assert viewer.post(page(one), FORM).status_code == 403
    assert viewer.post(f"{LIST}add/", FORM).status_code == 403
    assert viewer.post(f"{LIST}preview/", FORM).status_code == 403
    assert viewer.post(page(one, "delete"), {"post": "yes"}).status_code == 403
    assert login("view_job").get(LIST).status_code == 403
    assert stored().args == [1]


@pytest.mark.urls("demo_project.urls")
def test_an_unknown_verb_is_not_found_and_a_schedule_that_is_gone_leads_to_the_list(editor: Client) -> None:
    one = ScheduleFactory()
    assert editor.post(act(one, "explode")).status_code == 404
    assert editor.post(f"{LIST}{one.pk + 1}/act/enable/").url == LIST


def test_schedules_of_the_code_are_neither_edited_nor_deleted_here(editor: Client) -> None:
    one = ScheduleFactory(name="nightly", source="code")
    assert editor.post(page(one), FORM).status_code == 403
    assert editor.post(page(one, "delete"), {"post": "yes"}).status_code == 403
    assert "the code: change it there" in editor.get(page(one)).content.decode()
    assert editor.post(act(one, "disable")).status_code == 302
    assert not stored().enabled
    Schedule.objects.update(retired_at=NOON)
    assert editor.post(page(one, "delete"), {"post": "yes"}).status_code == 302
    assert not Schedule.objects.exists()


def test_the_list_deletes_nothing(editor: Client) -> None:
    one = ScheduleFactory(source="code")
    assert "delete_selected" not in editor.get(LIST).content.decode()
    choose(editor, "delete_selected", one, url=LIST, post="yes")
    assert Schedule.objects.exists()


def test_a_deletion_names_the_schedule_and_not_its_ticks(editor: Client, django_assert_max_num_queries: Any) -> None:
    one = ScheduleFactory(name="nightly")
    ScheduleTick.objects.bulk_create(ScheduleTick(schedule=one, nominal_at=NOON + timedelta(seconds=number)) for number in range(2000))
    assert len(editor.get(page(one, "delete")).content) < 20_000
    with django_assert_max_num_queries(20):
        assert editor.post(page(one, "delete"), {"post": "yes"}).url == LIST
    assert not ScheduleTick.objects.exists()


# Rights


def test_a_user_without_the_permission_to_enable_adds_a_disabled_schedule(login: Login) -> None:
    author = login("view_schedule", "add_schedule", "change_schedule")
    assert "enabled" not in author.get(f"{LIST}add/").context["adminform"].form.fields
    answer = author.post(f"{LIST}add/", FORM)
    assert told(answer)[0] == "Schedule nightly is disabled: you do not have the permission to enable schedules."
    assert not stored().enabled
    assert stored().next_at is not None


def test_a_change_by_a_user_without_the_permission_to_enable_disables_the_schedule(login: Login) -> None:
    author = login("view_schedule", "change_schedule")
    one = ScheduleFactory(name="nightly", kwargs={"b": 2})
    data = {**FORM, "args": "[1]", "kwargs": '{"b": 2}', "time_zone": "UTC"}
    author.post(page(one), {**data, "cron": "0 4 * * *"})
    assert stored().enabled
    author.post(page(one), {**data, "args": "[2]"})
    assert (stored().args, stored().enabled) == ([2], False)


def test_a_task_that_is_not_schedulable_is_not_offered_and_is_refused(editor: Client) -> None:
    offered = [path for path, _ in editor.get(f"{LIST}add/").context["adminform"].form.fields["task"].choices]
    assert "tests.tasks.add" in offered
    assert "tests.tasks.never_scheduled" not in offered
    one = ScheduleFactory(name="nightly", task="tests.tasks.never_scheduled", args=[])
    answer = editor.post(page(one), {**FORM, "task": one.task, "args": "[]", "kwargs": "{}"})
    assert "is declared with schedulable=False" in errors(answer)


def test_the_target_of_a_schedule_is_shown_without_its_secret(login: Login) -> None:
    one = ScheduleFactory(name="nightly", source="code", target="token=hunter2")
    assert "hunter2" not in login("view_schedule").get(page(one)).content.decode()
