"""Arguments and results: stored values are equal when they are read, and all other values are refused by name."""

import asyncio
import contextlib
import datetime
import decimal
import enum
import json
import math
import pathlib
import sys
import time
import types
import uuid
from array import array
from collections import ChainMap, OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping
from unittest.mock import MagicMock

import pytest
from django.db import connection
from django.http import QueryDict
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import example, given
from hypothesis import strategies as st

from jobqueue import compat
from jobqueue.core import payload
from jobqueue.core.payload import MAX_BYTES, MAX_DEPTH, dumps_arguments, dumps_metadata, dumps_result
from jobqueue.exceptions import InvalidArguments, InvalidArgumentType, InvalidArgumentValue, JobQueueError, ResultNotStorable
from jobqueue.models import Job
from tests.tasks_layer.samples import plain

normalize_json = compat.base.normalize_json
STORABLE_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), STORABLE_TEXT)
STORABLE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE_TEXT, inner, max_size=4), max_leaves=12
)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=5)
KEYS = st.one_of(ANY_TEXT, st.integers(), st.none(), st.floats(), st.tuples(st.integers()))
HOSTILE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT, st.binary(max_size=3), st.dates(), st.decimals(), st.uuids()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(KEYS, inner, max_size=3), st.frozensets(st.integers(), max_size=2)
    ),
    max_leaves=8,
)


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    ONE = 1


class Never(str):
    """A text that is not equal to anything."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Quiet(dict):
    """Show nothing of what it holds."""

    def items(self):
        return {}.items()


class Raising(dict):
    """Raise a `BaseException` when the value is read."""

    def items(self):
        raise SystemExit(3)


class Unreadable(list):
    def __iter__(self):
        raise ValueError(3)


class Lossy(Mapping):
    """A mapping that lists a key which it does not have."""

    def __iter__(self):
        return iter("a")

    def __len__(self):
        return 1

    def __getitem__(self, key):
        raise KeyError(key)


Point = namedtuple("Point", "x y")  # noqa: PYI024


def nested(depth: int) -> list[object]:
    """Return a list of that many levels."""
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def exactly(left: object, right: object) -> bool:
    """Return whether two JSON values are equal and of the same types all the way down."""
    return repr(left) == repr(right)


@pytest.mark.long
@given(st.lists(STORABLE, max_size=4), st.dictionaries(STORABLE_TEXT, STORABLE, max_size=4))
@example([1e16, -1e22, 1.5e300, 1e-320, -0.0], {"1e+16": '1e+16 "\\" 2e+20'})
def test_storable_arguments_come_back_equal_from_compact_ascii_json(args: list[object], kwargs: dict[str, object]) -> None:
    args_text, kwargs_text = dumps_arguments(args, kwargs)
    assert exactly(json.loads(args_text), args)
    assert exactly(json.loads(kwargs_text), kwargs)
    assert (args_text + kwargs_text).isascii()
    if "e+" not in repr((args, kwargs)):
        assert args_text == json.dumps(args, separators=(",", ":"))


@pytest.mark.long
@pytest.mark.django_db
@given(STORABLE)
@example([1e16, -1e22, 1.5e300, sys.float_info.max, sys.float_info.min, 1e-320, 10**4299])
def test_the_database_returns_the_same_value(value: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text" if connection.vendor == "postgresql" else "SELECT %s", [dumps_result(value)])
        (stored,) = cursor.fetchone()
    returned = json.loads(stored)
    assert returned == value
    # A database may sort keys and drop the sign of a zero; it must not turn a float into an int.
    assert sorted(repr(returned).replace("-0.0", "0.0")) == sorted(repr(value).replace("-0.0", "0.0"))


@pytest.mark.long
@given(HOSTILE)
def test_any_value_is_either_refused_or_stored_unchanged(value: object) -> None:
    try:
        text = dumps_result(value)
    except ResultNotStorable:
        return
    assert "\\u0000" not in text.replace("\\\\", "")
    json.loads(text).__repr__().encode()

    def listed(part: object) -> object:
        if isinstance(part, dict):
            return {key: listed(item) for key, item in part.items()}
        return [listed(item) for item in part] if isinstance(part, list | tuple) else part

    assert exactly(json.loads(text), listed(value))


def test_no_arguments_and_no_result_are_written_shortly() -> None:
    assert dumps_arguments((), {}) == ("[]", "{}")
    assert dumps_result(None) == "null"
    assert dumps_metadata({}) == "{}"


def test_tuples_become_lists_all_the_way_down() -> None:
    assert dumps_arguments((1, (2, (3,))), {"a": (4, [5])}) == ("[1,[2,[3]]]", '{"a":[4,[5]]}')
    assert dumps_result(Point(1, 2)) == "[1,2]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (range(3), "[0,1,2]"),
        (deque([1, (2,)]), "[1,[2]]"),
        (UserList([UserDict(a=range(1))]), '[{"a":[0]}]'),
        (types.MappingProxyType({"a": deque()}), '{"a":[]}'),
        (ChainMap({"a": 1}, {"b": 2}), '{"b":2,"a":1}'),
        (array("i", [1]), "[1]"),
    ],
)
def test_sequences_become_lists_and_mappings_dicts_as_in_djangos_own_backends(value: object, text: str) -> None:
    assert dumps_result(value) == text
    assert dumps_arguments([value, {"deep": value}], {"a": value}) == (f'[{text},{{"deep":{text}}}]', f'{{"a":{text}}}')
    assert json.loads(text) == normalize_json(value)


@pytest.mark.parametrize(
    "value", [UserDict({1: 2}), range(10**12), deque([b"x"]), UserList(["\0"]), types.MappingProxyType({"a": math.nan})]
)
def test_values_in_other_sequences_and_mappings_obey_the_same_rules(value: object) -> None:
    with pytest.raises(InvalidArguments):
        dumps_arguments([value], {})


def test_a_sequence_that_holds_itself_is_refused() -> None:
    value: UserList[object] = UserList()
    value.append(value)
    with pytest.raises(ResultNotStorable, match="contains itself"):
        dumps_result(value)


def test_an_unstorable_result_is_a_type_error_as_in_djangos_own_backends_and_a_value_error() -> None:
    for kind in (TypeError, ValueError):
        with pytest.raises(kind):
            dumps_result(object())


@pytest.mark.django_db
def test_a_stored_value_is_equal_and_on_postgresql_in_another_order_of_keys() -> None:
    given = {"longer": 1, "b": -0.0, "a": {"dd": 1, "c": 2}}
    result = plain.enqueue(given)
    stored = Job.objects.get(pk=result.job_id).args[0]
    assert stored == given
    kept = connection.vendor == "sqlite"
    assert (list(stored), math.copysign(1, stored["b"])) == (["longer", "b", "a"] if kept else ["a", "b", "longer"], -1 if kept else 1)


def test_any_sequence_and_any_mapping_may_carry_the_arguments_themselves() -> None:
    assert dumps_arguments(deque([1]), types.MappingProxyType({"a": 2})) == ("[1]", '{"a":2}')
    assert dumps_metadata(types.MappingProxyType({"a": 2})) == '{"a":2}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Color.RED, '"red"'),
        (Level.HIGH, "3"),
        ({Color.RED: 1}, '{"red":1}'),
        (mark_safe("<b>"), '"<b>"'),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (defaultdict(list, {"a": [1]}), '{"a":[1]}'),
    ],
)
def test_subclasses_that_equal_what_is_stored_are_accepted(value: object, text: str) -> None:
    assert dumps_arguments([value], {}) == (f"[{text}]", "{}")
    assert dumps_result(value) == text
    assert json.loads(text) == value


WRONG_TYPES = [
    (b"x", "bytes", "base64"),
    (bytearray(b"x"), "bytearray", "base64"),
    (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "datetime.datetime", "isoformat"),
    (datetime.date(2026, 1, 1), "datetime.date", "isoformat"),
    (datetime.time(1), "datetime.time", "isoformat"),
    (datetime.timedelta(1), "datetime.timedelta", "total_seconds"),
    (decimal.Decimal(1), "decimal.Decimal", r"str\(x\)"),
    (uuid.UUID(int=1), "uuid.UUID", r"str\(x\)"),
    (pathlib.Path("x"), "pathlib.*Path", r"str\(x\)"),
    ({1}, "set", r"sorted\(x\)"),
    (frozenset(), "frozenset", r"sorted\(x\)"),
    (memoryview(b"x"), "memoryview", "base64"),
    (UserString("x"), "collections.UserString", r"str\(x\)"),
    ({}.keys(), "dict_keys", r"list\(x\)"),
    (iter([]), "list_iterator", r"list\(x\)"),
    (QueryDict("a=1"), "QueryDict", r"dict\(x\)"),
    (Quiet(a=1), "Quiet", r"dict\(x\)"),
    (Plain.ONE, "Plain", "x.value"),
    (gettext_lazy("Yes"), "__proxy__", r"str\(x\)"),
    (Never("x"), "Never", r"str\(x\)"),
    (object(), "object", "id of a stored record"),
    (len, "builtin_function_or_method", "id of a stored record"),
    (1j, "complex", "id of a stored record"),
]


@pytest.mark.parametrize(("value", "kind", "fix"), WRONG_TYPES, ids=[kind for _, kind, _ in WRONG_TYPES])
def test_a_wrong_type_is_named_with_its_place_and_the_fix(value: object, kind: str, fix: str) -> None:
    with pytest.raises(TypeError, match=rf'^The job cannot be enqueued: args\[1\]\["a"\]\[0\] is of type .*{kind}, .*{fix}') as caught:
        dumps_arguments([0, {"a": [value]}], {})
    assert isinstance(caught.value, InvalidArgumentType)
    with pytest.raises(ResultNotStorable, match=rf"result is of type .*{kind}, .*{fix}"):
        dumps_result(value)


def test_a_result_that_raises_when_it_is_read_is_not_storable() -> None:
    with pytest.raises(ResultNotStorable, match="its result cannot be stored: reading it raised SystemExit: 3"):
        dumps_result([Raising(a=1)])


@pytest.mark.parametrize("value", [Unreadable([1]), Lossy()], ids=["sequence", "mapping"])
def test_an_argument_that_raises_when_it_is_read_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentValue, match=r"^The job cannot be enqueued: reading args raised (ValueError: 3|KeyError: 'a')\.$"):
        dumps_arguments([value], {})


def test_a_lazy_list_or_dict_is_stored_as_in_djangos_own_backends() -> None:
    args = [SimpleLazyObject(lambda: {"a": SimpleLazyObject(lambda: [1])})]
    assert dumps_arguments(args, {}) == ('[{"a":[1]}]', "{}")


@pytest.mark.parametrize("value", ["text", 1, 1.5, None, True])
def test_any_other_lazy_object_is_refused_with_the_fix(value: object) -> None:
    with pytest.raises(InvalidArgumentType, match=r"args\[0\] is of type .*SimpleLazyObject, .* Pass the value that it wraps"):
        dumps_arguments([SimpleLazyObject(lambda: value)], {})


def test_the_lazy_user_of_a_request_is_answered_with_its_primary_key() -> None:
    from django.contrib.auth.models import User

    with pytest.raises(InvalidArgumentType, match=r"SimpleLazyObject, .*x\.pk"):
        dumps_arguments([SimpleLazyObject(User)], {})


@pytest.mark.parametrize("kind", [dict, list, str, int, float])
def test_an_object_that_only_claims_to_be_of_a_type_is_refused(kind: type) -> None:
    with pytest.raises(InvalidArgumentType, match=r"args\[0\] is of type unittest\.mock\.MagicMock"):
        dumps_arguments([MagicMock(spec=kind)], {})


def test_a_result_that_could_be_awaited_was_not() -> None:
    with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(ResultNotStorable, match="a Future, which is not awaited"):
        dumps_result(loop.create_future())


def test_a_model_instance_is_answered_with_its_primary_key() -> None:
    from django.contrib.auth.models import User

    with pytest.raises(TypeError, match=r"auth.models.User, .*x\.pk"):
        dumps_arguments([User()], {})


WRONG_VALUES: list[tuple[str, object, str]] = [
    ("nan", math.nan, "is the float nan"),
    ("infinity", math.inf, "is the float inf"),
    ("minus infinity", -math.inf, "is the float -inf"),
    ("nul", "a\0b", "holds a NUL character at position 1"),
    ("high surrogate", "a\ud800b", "holds half of a surrogate pair at position 1"),
    ("low surrogate", "\udfffb", "holds half of a surrogate pair at position 0"),
    ("pair in two halves", "\ud83d\ude00", "holds half of a surrogate pair at position 0"),
    ("huge int", 10**4300, "is an int of more than 4300 digits"),
    ("huge negative int", -(10**100_000), "is an int of more than 4300 digits"),
]


@pytest.mark.parametrize(("value", "problem"), [pytest.param(value, problem, id=name) for name, value, problem in WRONG_VALUES])
def test_a_wrong_value_is_named_with_its_place(value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=rf'^The job cannot be enqueued: kwargs\["a"\]\[1\] {problem}') as caught:
        dumps_arguments([], {"a": [0, value]})
    assert isinstance(caught.value, InvalidArgumentValue)
    with pytest.raises(ResultNotStorable, match=f"^The task ran, but its result cannot be stored: result {problem}"):
        dumps_result(value)
    with pytest.raises(InvalidArguments, match=rf'metadata\["a"\] {problem}'):
        dumps_metadata({"a": value})


def test_a_huge_int_is_refused_even_where_this_process_could_print_it() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(InvalidArgumentValue, match=r"args\[0\] is an int of more than 4300 digits"):
            dumps_arguments([10**4300], {})
        assert json.loads(dumps_arguments([10**4299, "1" * 5000], {})[0]) == [10**4299, "1" * 5000]
    finally:
        sys.set_int_max_str_digits(before)


def test_harmless_similar_values_are_accepted() -> None:
    value = ["\\u0000", "\\ud800", "\U0001f600", "\\", "e+", "NaN", "1" * 5000]
    assert json.loads(dumps_arguments(value, {})[0]) == value


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), b"k"])
def test_keys_other_than_text_are_refused(key: object) -> None:
    with pytest.raises(TypeError, match=rf"args\[0\] has a key of type {type(key).__name__}; JSON has only str keys. Use str\(key\)"):
        dumps_arguments([{key: 1}], {})
    with pytest.raises(TypeError, match="kwargs has a key of type"):
        dumps_arguments([], {key: 1})
    with pytest.raises(ResultNotStorable, match="has a key of type"):
        dumps_result([{key: 1}])


def test_a_key_with_a_nul_is_refused_and_shown_printable() -> None:
    with pytest.raises(ValueError, match=r'the key of args\[0\]\["k\\x00"\] holds a NUL character'):
        dumps_arguments([{"k\0": 1}], {})
    with pytest.raises(ValueError, match=r'the key of kwargs\["aaa.*…"\] holds half of a surrogate'):
        dumps_arguments([], {"a" * 100 + "\ud800": 1})


def test_errors_do_not_show_values() -> None:
    with pytest.raises(InvalidArguments) as caught:
        dumps_arguments([], {"password": b"hunter2"})
    assert "hunter2" not in str(caught.value)


def test_the_depth_has_a_limit() -> None:
    value = nested(MAX_DEPTH)
    assert dumps_arguments([value], {"a": value})[0] == "[" * 101 + "]" * 101
    assert dumps_result(value) == "[" * 100 + "]" * 100
    with pytest.raises(ValueError, match="args is nested deeper than 100 levels"):
        dumps_arguments([[value]], {})
    with pytest.raises(ValueError, match="kwargs is nested deeper than 100 levels"):
        dumps_arguments([], {"a": {"b": value}})
    with pytest.raises(ResultNotStorable, match="result is nested deeper than 100 levels"):
        dumps_result(nested(MAX_DEPTH + 1))
    with pytest.raises(ResultNotStorable, match="result is nested deeper"):
        dumps_result(nested(100_000))


def test_a_value_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    ring: dict[str, object] = {}
    ring["ring"] = ring
    for value in (circle, ring):
        with pytest.raises(ValueError, match="or contains itself"):
            dumps_arguments([value], {})


@pytest.mark.parametrize(
    "store",
    [lambda text: dumps_arguments([text], {}), lambda text: dumps_arguments([], {"a": text}), lambda text: dumps_metadata({"a": text})],
)
def test_more_than_a_megabyte_of_arguments_is_refused_with_its_size(store: Callable[[str], object]) -> None:
    store("x" * (MAX_BYTES - 8))
    with pytest.raises(
        InvalidArgumentValue, match=r"(args|kwargs|metadata) takes 5,000,\d+ bytes as JSON, the limit is 1,000,000\. Store .* pass its id"
    ):
        store("x" * 5_000_000)


def test_more_than_a_megabyte_of_result_is_refused_with_its_size() -> None:
    assert len(dumps_result("x" * (MAX_BYTES - 2))) == MAX_BYTES
    with pytest.raises(ResultNotStorable, match=r"result takes 1,000,001 bytes as JSON, .* return its id"):
        dumps_result("x" * (MAX_BYTES - 1))
    with pytest.raises(ResultNotStorable, match=r"the limit is 1,000,000"):
        dumps_result([1e300] * 10_000)  # written with all of their digits


@pytest.mark.long
def test_a_small_object_that_unfolds_into_millions_of_values_is_refused_soon() -> None:
    doubled: list[object] = []
    for _ in range(90):
        doubled = [doubled, doubled]
    wide = [[0] * 100_000] * 100_000
    for value in (doubled, wide):
        started = time.thread_time()
        with pytest.raises(ValueError, match="holds more than"):
            dumps_arguments([value], {})
        assert time.thread_time() - started < 10


def test_metadata_must_be_a_mapping() -> None:
    with pytest.raises(TypeError, match="metadata cannot be stored: it is a list; it must be a dict"):
        dumps_metadata([1])


def test_every_refusal_can_be_caught_as_type_or_value_error_and_as_jobqueue_error() -> None:
    for kind, builtin in ((InvalidArgumentType, TypeError), (InvalidArgumentValue, ValueError), (ResultNotStorable, ValueError)):
        assert issubclass(kind, builtin)
        assert issubclass(kind, JobQueueError)


@pytest.mark.long
@given(STORABLE)
def test_without_the_c_encoder_the_text_is_the_same(value: object) -> None:
    fast = dumps_result(value)
    kept, payload._FAST_ENCODER = payload._FAST_ENCODER, None
    try:
        assert dumps_result(value) == fast
    finally:
        payload._FAST_ENCODER = kept
