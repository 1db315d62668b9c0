"""Texts of exceptions: always storable, always short, whatever the exception does."""

import importlib
import linecache
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.core import texts
from jobqueue.core.masking import Mask
from jobqueue.core.texts import KEPT_TEXTS, clean, error_text, exception_path, exception_summary, safe_repr, shorten

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)


class HostileError(Exception):
    """Raise in every method that a report might call."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise SystemExit(6)

    @property
    def __notes__(self) -> list[str]:
        raise KeyboardInterrupt


class HostileText(str):
    """A text whose methods cannot be trusted."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        raise SystemExit(4)

    def __len__(self) -> int:
        return 1

    def split(self, *_: object) -> list[str]:
        raise SystemExit(5)


def caught(function: Callable[[], object]) -> BaseException:
    """Return what a function raises."""
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def fail(message: str = "broken") -> None:
    """Raise an error with a secret in a local variable."""
    a_local_variable = "hunter" + "2"
    raise ValueError(message, len(a_local_variable))


@given(ANY_TEXT)
def test_a_cleaned_text_has_no_nul_and_can_be_encoded(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned) == len(text)


def test_unstorable_characters_become_visible_ones() -> None:
    assert clean("a\0b\ud800c\U0001f600") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\U0001f600"


@pytest.mark.long
@given(ANY_TEXT, st.integers(0, 300))
def test_a_shortened_text_keeps_its_limit_in_bytes(text: str, limit: int) -> None:
    text = clean(text)
    short = shorten(text, limit)
    assert len(short.encode()) <= limit
    assert (short == text) == (len(text.encode()) <= limit)


def test_a_shortened_text_says_how_long_it_was() -> None:
    assert shorten("ä" * 100, 40) == "ä" * 9 + "… [cut, 200 bytes]"


def test_a_small_error_reads_as_python_shows_it_without_locals() -> None:
    text = error_text(caught(fail))
    assert text.startswith("Traceback (most recent call last):\n  File ")
    assert text.endswith("ValueError: ('broken', 7)")
    assert "raise ValueError(message, len(a_local_variable))" in text
    assert "hunter2" not in text


def test_the_callers_frames_can_be_left_out() -> None:
    error = caught(fail)
    assert ", in caught" in error_text(error)
    assert ", in caught" not in error_text(error, skip_frames=1)
    assert ", in fail" in error_text(error, skip_frames=1)


def test_frames_are_shown_after_all_if_there_are_no_others() -> None:
    assert ", in fail" in error_text(caught(fail), skip_frames=5)


def test_the_same_failure_reads_the_same_again_and_another_line_of_the_same_function_does_not() -> None:
    def either(first: bool) -> None:
        if first:
            raise ValueError("in the first line")
        raise ValueError("in the second line")

    shown = [error_text(caught(lambda which=which: either(which))) for which in (True, False, True)]  # type: ignore[misc]
    assert shown[0] == shown[2] != shown[1]
    assert 'raise ValueError("in the second line")' in shown[1]


def function_of(source: str, path: str) -> Callable[[], None]:
    """Return the function that a source text defines."""
    [code] = [value for value in compile(source, path, "exec").co_consts if isinstance(value, CodeType)]
    return FunctionType(code, {})


def test_two_files_with_the_same_code_are_not_taken_for_each_other(tmp_path: Path) -> None:
    shown = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.py"
        path.write_text("def fail():\n    raise ValueError\n")
        shown.append(error_text(caught(function_of(path.read_text(), str(path)))))
    assert [f"{name}.py" in text for name, text in zip(("one", "two"), shown, strict=True)] == [True, True]


def test_no_more_than_a_few_texts_of_frames_are_kept() -> None:
    for number in range(3 * KEPT_TEXTS):
        made = function_of("\n" * number + "def fail(): raise ValueError", "made.py")
        assert f"line {number + 1}, in fail" in error_text(caught(made))
    assert len(texts._kept) <= KEPT_TEXTS


def test_the_kept_text_of_frames_hides_what_each_job_has_to_hide() -> None:
    error = caught(lambda: fail("a message"))
    plain, named, known = (
        error_text(error, hide=Mask()),
        error_text(error, hide=Mask(["hidden"])),
        error_text(error, hide=Mask((), ["raise ValueError"])),
    )
    assert "raise ValueError(message" in plain
    assert "raise ValueError(message" in named
    assert "raise ValueError" not in known
    assert error_text(error, hide=Mask()) == plain
    source = "def fail(): connect(token='hunter2', hidden='hunter3')"
    linecache.cache["secrets.py"] = (len(source), None, [source], "secrets.py")
    error = caught(function_of(source, "secrets.py"))
    for _ in range(2):
        assert ("hunter2" in error_text(error), "hunter3" in error_text(error)) == (True, True)
        plain, named = error_text(error, hide=Mask()), error_text(error, hide=Mask(["hidden"]))
        assert ("hunter2" in plain, "hunter3" in plain) == (False, True)
        assert ("hunter2" in named, "hunter3" in named) == (False, False)


def test_an_endless_recursion_shows_its_first_and_its_last_frames_only() -> None:
    def ping() -> object:
        return pong()

    def pong() -> object:
        return ping()

    text = error_text(caught(ping))
    assert "RecursionError: maximum recursion depth exceeded" in text
    assert ", in caught" in text
    assert text.count("\n  File ") == 30
    assert "frames are left out]" in text
    assert len(text) < 6000


def test_forty_thousand_frames_are_rendered_in_no_time() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    try:

        def recurse(left: int) -> None:
            if not left:
                fail()
            recurse(left - 1)

        error = caught(lambda: recurse(40_000))
    finally:
        sys.setrecursionlimit(before)
    started = time.thread_time()
    text = error_text(error)
    assert time.thread_time() - started < 2
    assert len(text) < 6000
    assert ", in fail" in text


def test_a_hostile_exception_becomes_a_readable_placeholder() -> None:
    error = HostileError()
    assert exception_summary(error).endswith("HostileError: <str() of this HostileError raised SystemExit>")
    assert error_text(error) == exception_summary(error)

    def hostile() -> None:
        raise ValueError("at last") from error

    assert "HostileError raised SystemExit>\n\nThe above exception" in error_text(caught(hostile))
    assert safe_repr(error) == "<repr() of this HostileError raised SystemExit>"


def test_a_str_that_recurses_without_end_is_reported() -> None:
    class EndlessError(Exception):
        def __str__(self) -> str:
            return str(self)

    assert "raised RecursionError" in error_text(EndlessError())


def test_a_text_subclass_that_lies_about_itself_is_taken_as_plain_text() -> None:
    class LyingError(Exception):
        def __str__(self) -> str:
            return HostileText("x" * 10_000)

    assert len(exception_summary(LyingError())) == 500
    assert "[cut, 10000 bytes]" in error_text(LyingError(), 4_000)


def test_a_class_without_a_usable_name_is_still_named() -> None:
    class Meta(type):
        @property
        def __module__(cls) -> str:
            raise SystemExit

    error = Meta("BrokenError", (Exception,), {})("why")
    assert exception_path(error) == "unknown.BrokenError"
    assert exception_summary(error) == "unknown.BrokenError: why"


@pytest.mark.long
def test_thirty_megabytes_of_message_are_cut_with_a_mark() -> None:
    text = error_text(caught(lambda: fail("ä" * 15_000_000)))
    assert len(text.encode()) <= 64_000
    assert "[cut, 300000" in text
    assert text.startswith("Traceback")


def test_nul_and_surrogates_never_reach_the_database() -> None:
    error = caught(lambda: fail("a\0b\ud800"))
    error.add_note("n\0te")
    for text in (error_text(error), exception_summary(error), error_text(RuntimeError("\0\udfff"))):
        assert clean(text) == text


def test_the_summary_is_one_line_of_at_most_500_characters() -> None:
    assert exception_summary(ValueError("a\nb\r\n  c")) == "ValueError: a b c"
    assert exception_summary(ValueError("x" * 501)).endswith("x…")
    assert len(exception_summary(ValueError("ä" * 5000))) == 500
    assert exception_summary(ValueError()) == "ValueError"


def test_the_path_imports_the_class() -> None:
    module, _, name = exception_path(HostileError()).rpartition(".")
    assert getattr(importlib.import_module(module), name) is HostileError
    assert exception_path(KeyError("x")) == "builtins.KeyError"


def test_causes_come_first_and_say_how_they_led_on() -> None:
    def chained() -> None:
        try:
            try:
                fail("root")
            except ValueError as error:
                raise OSError("middle") from error
        except OSError:
            raise KeyError("top")  # noqa: B904

    text = error_text(caught(chained))
    order = [text.index(part) for part in ("root", "direct cause", "OSError: middle", "During handling", "KeyError: 'top'")]
    assert order == sorted(order)


def test_a_suppressed_context_is_not_shown() -> None:
    def suppressed() -> None:
        try:
            fail("root")
        except ValueError:
            raise OSError("top") from None

    assert "root" not in error_text(caught(suppressed))


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    text = error_text(first)
    assert text.count("first") == text.count("second") == 1


def test_an_endless_chain_shows_both_of_its_ends() -> None:
    top = root = ValueError("number 0")
    for number in range(1, 100_000):
        root.__cause__ = root = ValueError(f"number {number}")
    text = error_text(top)
    assert "number 0" in text
    assert "number 99999" in text
    assert "[99,992 exceptions between" in text
    assert len(text) < 6000
    while top is not None:  # a chain this long would overflow the C stack when it is freed at once
        top.__cause__, top = None, top.__cause__  # type: ignore[assignment]


def test_a_group_shows_its_members_and_stays_small() -> None:
    group: BaseException = ExceptionGroup("leaves", [ValueError(f"leaf {number}" + "x" * 1000) for number in range(50)])
    text = error_text(group)
    assert "  ValueError: leaf 0" in text
    assert "leaf 4" in text
    assert "[45 of 50 in this group are left out]" in text
    wide: Exception = ValueError("leaf")
    for _ in range(3):
        wide = ExceptionGroup("level", [wide] * 5)
    assert error_text(wide).count("ValueError: leaf") <= 20
    for _ in range(100):
        group = ExceptionGroup("level", [group, ValueError("beside")])
    assert len(error_text(group)) < 20_000


def test_a_group_in_its_own_cause_ends() -> None:
    member = ValueError("member")
    group = ExceptionGroup("group", [member])
    member.__context__ = group
    assert error_text(group).count("ValueError: member") <= 20


def test_notes_are_shown_and_limited() -> None:
    error = ValueError("x")
    for number in range(30):
        error.add_note(f"note {number}")
    text = error_text(error)
    assert "note 0" in text
    assert "[25 notes are left out]" in text


@given(ANY_TEXT, st.integers(0, 3000))
def test_no_message_makes_the_text_longer_than_its_limit(message: str, limit: int) -> None:
    text = error_text(ValueError(message), limit)
    assert len(text.encode()) <= limit
    assert clean(text) == text
