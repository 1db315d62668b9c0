"""Rerun the failed tests of a run of `make test-all`, one by one, if each failed only because of a timeout.

The arguments are the report of that run and pytest's command. On a busy machine, a test can wait too long (`wait_until`, a browser's
timeout) although it passes when it runs alone. The second result counts, and both are printed. Any other failure counts at once: a lost
job, or a job that runs twice, is not a matter of time.
"""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

OF_TIME = re.compile(
    r"In [\d.]+ s it did not come about that |Timeout \d+ms exceeded|The worker did not end in [\d.]+ s|the longest waits: "
    r"|timed out after [\d.]+ seconds|not within [\d.]+ s: "
    # a time, or the difference of two, against the most that it may be
    r"|assert (\d+\.\d+|\(\d+\.\d+ - \d+\.\d+\)) <=? "
)
MOST = 5


def main(report: str, *command: str) -> int:
    """Return the exit code of the second run; 1 where there is none."""
    if not os.path.exists(report):
        return 1
    failed = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        for problem in (*case.iter("failure"), *case.iter("error")):
            if not OF_TIME.search(problem.get("message") or ""):
                print(f"{case.get('name')} did not fail of time alone.")
                return 1
            failed.append(f"{(case.get('file') or case.get('classname', '').replace('.', '/') + '.py')}::{case.get('name')}")
    if not 0 < len(failed) <= MOST:
        return 1
    print(f"These waited in vain, and run once more, alone: {', '.join(failed)}", flush=True)
    return subprocess.run([*command, f"--junitxml={report.removesuffix('.xml')}-again.xml", *failed], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
