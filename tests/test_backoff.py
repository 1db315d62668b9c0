"""Backoff policies: their numbers, their jitter, and policies that misbehave."""

import math
import sys
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobqueue.core import backoff
from jobqueue.core.backoff import Exponential, Fixed, Linear, delay_seconds, exponential, fixed, linear
from jobqueue.exceptions import MAX_DELAY_SECONDS, Fatal, Interrupted, InvalidBackoff, InvalidOption, JobQueueError, LeaseLost, Retry

# Realistic numbers, and very large ones.
FAILURES = st.one_of(st.integers(-5, 100), st.integers(10**9, 10**9 + 5), st.just(10**400))
SECONDS = st.floats(0, 1e9, allow_subnormal=True)


@st.composite
def policies(draw: st.DrawFn) -> Fixed | Linear | Exponential:
    """Draw any valid policy."""
    low, high = sorted((draw(SECONDS), draw(SECONDS)))
    jitter = draw(st.booleans())
    factor = draw(st.floats(1, 1000))
    return draw(
        st.sampled_from(
            (fixed(low, jitter=jitter), linear(low, cap=high, jitter=jitter), exponential(low, factor=factor, cap=high, jitter=jitter))
        )
    )


@pytest.mark.long
@given(policies(), FAILURES, st.floats(0, 1))
@example(exponential(5e-324, factor=1.0000001, cap=1e9), 10**400, 1.0)
@example(linear(5e-324, cap=1e9), 10**400, 1.0)
@example(exponential(0, cap=0), 10**9, 0.5)
def test_a_delay_is_finite_never_negative_and_never_above_the_cap(
    policy: Fixed | Linear | Exponential, failures: int, drawn: float
) -> None:
    delay = policy.delay(failures, random=lambda: drawn)
    cap = policy.seconds * 1.4 if isinstance(policy, Fixed) else policy.cap
    assert 0 <= delay <= min(cap, 1.4 * MAX_DELAY_SECONDS)
    assert 0 <= delay_seconds(policy, None, failures) <= MAX_DELAY_SECONDS


@pytest.mark.long
@given(policies(), FAILURES)
def test_jitter_spreads_by_a_fifth_at_least_and_stays_above_seven_tenths(policy: Fixed | Linear | Exponential, failures: int) -> None:
    fields = {name: getattr(policy, name) for name in policy.__dataclass_fields__}
    exact = type(policy)(**fields | {"jitter": False}).delay(failures)
    jittered = type(policy)(**fields | {"jitter": True})
    low, high = jittered.delay(failures, random=lambda: 0.0), jittered.delay(failures, random=lambda: 1.0)
    if exact > 1e-300:
        assert high - low >= 0.2 * exact
    assert 0.7 * exact <= low <= high <= 1.4 * exact


def test_jitter_never_shortens_a_delay_that_has_room_below_the_cap() -> None:
    assert fixed(30).delay(1, random=lambda: 0.0) == 30
    assert linear(30, cap=300).delay(2, random=lambda: 0.0) == 60
    assert exponential(30, cap=300).delay(2, random=lambda: 0.0) == 60


def test_two_thousand_jobs_that_failed_together_come_back_spread() -> None:
    delays = [delay_seconds(fixed(30), ValueError(), 1) for _ in range(2000)]
    assert max(delays) - min(delays) >= 6
    assert min(delays) >= 30
    at_cap = [delay_seconds(exponential(2, cap=300), ValueError(), 50) for _ in range(2000)]
    assert max(at_cap) - min(at_cap) >= 60
    assert max(at_cap) <= 300


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (fixed(7, jitter=False), [7, 7, 7, 7]),
        (fixed(timedelta(minutes=1), jitter=False), [60, 60, 60, 60]),
        (linear(10, cap=25, jitter=False), [10, 20, 25, 25]),
        (exponential(2, cap=10, jitter=False), [2, 4, 8, 10]),
        (exponential(1, factor=3, cap=100, jitter=False), [1, 3, 9, 27]),
        (exponential(5, factor=1, jitter=False), [5, 5, 5, 5]),
    ],
)
def test_without_jitter_the_numbers_are_exact(policy: backoff.Backoff, expected: list[float]) -> None:
    assert [policy(None, failures) for failures in (1, 2, 3, 4)] == expected


def test_no_failure_counts_as_the_first_one() -> None:
    assert linear(10, jitter=False)(None, 0) == 10
    assert exponential(2, jitter=False)(None, -3) == 2


def test_policies_are_equal_and_hashable_by_their_numbers() -> None:
    assert exponential(base=2, cap=300) == backoff.DEFAULT
    assert hash(fixed(3)) == hash(fixed(3.0))
    assert fixed(3) != fixed(3, jitter=False)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: fixed(-1), r"fixed\(seconds\) is -1"),
        (lambda: fixed(math.nan), r"fixed\(seconds\) is nan"),
        (lambda: fixed(math.inf), r"fixed\(seconds\) is inf"),
        (lambda: fixed("3"), r"fixed\(seconds\) is a str"),
        (lambda: fixed(True), r"fixed\(seconds\) is a bool"),
        (lambda: fixed(3, jitter=1), r"fixed\(jitter\) is 1"),
        (lambda: linear(10, cap=5), r"linear\(base\) is 10.0 and cap is 5.0; cap limits every delay"),
        (lambda: exponential(600), r"exponential\(base\) is 600.0 and cap is 300.0"),
        (lambda: exponential(2, factor=0.5), r"exponential\(factor\) is 0.5"),
        (lambda: exponential(2, factor=math.nan), r"exponential\(factor\) is nan"),
        (lambda: exponential(2, factor=10**5000), r"exponential\(factor\) is <"),
        (lambda: exponential(2, cap=-(10**5000)), r"exponential\(cap\) is a huge negative number"),
    ],
)
def test_wrong_numbers_are_refused_by_name(make: object, named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        make()  # type: ignore[operator]
    assert isinstance(caught.value, InvalidOption)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (3, 3.0),
        (2.5, 2.5),
        (0, 0.0),
        (timedelta(minutes=2), 120.0),
        pytest.param(10**5000, MAX_DELAY_SECONDS, id="huge"),
        (1e300, MAX_DELAY_SECONDS),
    ],
)
def test_a_callable_may_return_seconds_or_a_timedelta_and_is_cut_to_a_year(returned: float, expected: float) -> None:
    result = delay_seconds(lambda exception, failures: returned, None, 1)
    assert result == expected
    assert type(result) is float


def test_a_callable_sees_the_exception_and_the_number_of_failures() -> None:
    error = OSError("down")
    assert delay_seconds(lambda exception, failures: 10 * failures if exception is error else 1, error, 3) == 30


@pytest.mark.parametrize(
    "returned",
    [None, True, "3", -1, -0.001, math.nan, math.inf, -math.inf, pytest.param(-(10**5000), id="huge"), timedelta(seconds=-1), object()],
)
def test_a_callable_that_returns_no_delay_is_named_with_what_it_returned(returned: object) -> None:
    def my_policy(exception: BaseException | None, failures: int) -> object:
        return returned

    with pytest.raises(InvalidBackoff, match=r"my_policy.* returned .* after 4 failed attempts: the delay is"):
        delay_seconds(my_policy, None, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError()])
def test_a_callable_that_raises_anything_ends_in_one_error_that_names_it(error: BaseException) -> None:
    def my_policy(exception: BaseException | None, failures: int) -> float:
        raise error

    with pytest.raises(InvalidBackoff, match=rf"my_policy.* raised {type(error).__name__}") as caught:
        delay_seconds(my_policy, None, 1)
    assert caught.value.__cause__ is error


def test_an_interrupt_that_arrives_inside_a_policy_passes_through() -> None:
    def interrupted(exception: BaseException | None, failures: int) -> float:
        raise LeaseLost

    with pytest.raises(Interrupted):
        delay_seconds(interrupted, None, 1)


def test_a_policy_with_a_broken_repr_and_an_endless_recursion_is_still_reported() -> None:
    class Policy:
        def __call__(self, exception: BaseException | None, failures: int) -> float:
            return self(exception, failures)

        def __repr__(self) -> str:
            sys.exit("no")

    with pytest.raises(InvalidBackoff, match=r"<repr\(\) of this .*Policy raised SystemExit> raised RecursionError"):
        delay_seconds(Policy(), None, 1)


def test_retry_keeps_its_message_and_its_delay_in_seconds() -> None:
    assert Retry("later").delay_seconds is None
    retry = Retry("busy", delay=timedelta(minutes=5))
    assert (str(retry), retry.delay_seconds) == ("busy", 300.0)
    assert Retry(delay=0).delay_seconds == 0
    assert Retry(delay=10**5000).delay_seconds == MAX_DELAY_SECONDS


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "5", True, timedelta(days=-1)])
def test_retry_refuses_what_is_no_delay(delay: float) -> None:
    with pytest.raises(InvalidOption, match="delay is"):
        Retry(delay=delay)


def test_control_flow_escapes_except_exception_and_task_errors_do_not() -> None:
    assert issubclass(LeaseLost, Interrupted)
    assert not issubclass(Interrupted, Exception)
    assert issubclass(Retry, Exception)
    assert issubclass(Fatal, Exception)
    assert not issubclass(Retry, JobQueueError)
