"""The lock of what CI installs: one file for each version of Python, with names and versions only.

``lock.py`` prints the option of pip that applies it (nothing outside of CI); ``lock.py ARGUMENT…`` renews it from what pip resolves for
``pip install ARGUMENT…`` today.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parent / f"lock-{sys.version_info[0]}.{sys.version_info[1]}.txt"
HEAD = "# What CI installs on this version of Python. Renew it with: make lock\n"


def option() -> str:
    """Return the option of pip: people get the newest versions that pyproject.toml allows, CI those of the lock."""
    return f"--constraint {LOCK}" if os.environ.get("CI") and LOCK.exists() else ""


def renew(arguments: list[str]) -> None:
    """Resolve everything anew, whatever is installed."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", *arguments]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)
    found = {one["metadata"]["name"].lower(): one["metadata"]["version"] for one in report["install"]}
    found.pop("jobqueue", None)
    LOCK.write_text(HEAD + "".join(f"{name}=={version}\n" for name, version in sorted(found.items())))
    print(f"{LOCK.name}: {len(found)} packages.")


if __name__ == "__main__":
    if sys.argv[1:]:
        renew(sys.argv[1:])
    else:
        print(option())
