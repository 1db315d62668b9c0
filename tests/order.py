"""Distribute the tests among the processes of pytest-xdist if they start processes of their own (``--dist loadfile``).

By itself pytest-xdist keeps the tests of a file together, and starts with the files that have many. Here only those stay together that
share a scene or run concurrently. Slow tests come first, so that all processes end at about the same time.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parent.parent
# How a file says so: it makes or uses a fixture of the module, or all of its tests use one port.
SHARES = re.compile(r'tests\.faults\.together|shared_workers|scope="module"|"--port", "')


class LongestFirst(LoadFileScheduling):
    """Hand out whole the files whose tests share something, and all other tests one by one, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        """Keep the order."""
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return file if shares(file) else nodeid


@cache
def shares(file: str) -> bool:
    """Return whether the tests of a file share a scene."""
    return SHARES.search((ROOT / file).read_text()) is not None


def seconds(item: pytest.Item) -> float:
    """Return how long a test says that it takes: ``slow(seconds=60)``; all tests of a file that shares something say so together."""
    mark = item.get_closest_marker("slow")
    return float(mark.kwargs.get("seconds", 10)) if mark else 0.0
