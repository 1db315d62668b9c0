"""Exceptions for the process and for the task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from jobqueue.exceptions import is_for_the_process


@pytest.mark.parametrize("error", [ValueError(), SystemExit(3), GeneratorExit(), KeyboardInterrupt()])
def test_ctrl_c_alone_is_for_the_process_and_in_the_main_thread_alone(error: BaseException) -> None:
    assert is_for_the_process(error) is isinstance(error, KeyboardInterrupt)
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(is_for_the_process, error).result()
