"""Share the tests out among the processes of pytest-xdist where they start processes of their own (``--dist loadfile``).

By itself pytest-xdist keeps the tests of a file together, and begins with the files that have many. Here only those stay together that
look at one scene or play it together; and what says that it takes long comes first: else the last process would be busy with it long
after the others have ended.
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
    """Tell whether the tests of a file share something."""
    return SHARES.search((ROOT / file).read_text()) is not None


def seconds(item: pytest.Item) -> float:
    """Return how long a test says that it takes: ``slow(seconds=60)``; all tests of a file that shares something say so together."""
    mark = item.get_closest_marker("slow")
    return float(mark.kwargs.get("seconds", 10)) if mark else 0.0
