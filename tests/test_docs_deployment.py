"""The page about deployment says what the code says."""

import re
from pathlib import Path

from jobqueue import conf
from jobqueue.lifecycle.expire import MAX_UNBLAMED
from jobqueue.worker.fleet.child import CLOSE_SECONDS, times

PAGE = (Path(__file__).parent.parent / "docs" / "deployment.md").read_text()


def test_the_graces_are_the_codes_and_each_platform_waits_for_longer() -> None:
    rows = {name: float(seconds) for name, seconds in re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|$", PAGE, re.MULTILINE)}
    defaults = conf.Settings()
    assert rows == {name: getattr(defaults, name.lower()) for name in rows}
    assert sum(rows.values()) + CLOSE_SECONDS == times(defaults).drain_seconds
    advised = [int(number) for number in re.findall(r"(?<!\d)(3\d\d)(?!\d)", PAGE) if number != "300"]
    assert len(advised) == 6, advised
    assert min(advised) > times(defaults).drain_seconds
    assert f"up to {MAX_UNBLAMED} times" in PAGE
