"""`call_command("runworkers")` where no worker can run."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.management import CommandError, call_command


@pytest.mark.parametrize("options", [{}, {"processes": 2}, {"once": True}])
def test_a_thread_that_gets_no_signals_cannot_be_a_worker(options: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(call_command, "runworkers", **options)
        with pytest.raises(CommandError, match="needs the main thread of its process"):
            done.result(timeout=30)
