"""Enqueue jobs until the end, as the processes of a web site do, and print what each caller got; run as a separate process.

Its standard output has one line of JSON for each try, written only after the call has returned.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import django
from django.core.signals import request_finished, request_started

PAUSE_SECONDS = 0.04


def main() -> None:
    """Enqueue until the standard input is closed."""
    django.setup()
    from tests.faults.tasks import work

    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    number = 0
    while not ended.wait(PAUSE_SECONDS):
        number += 1
        request_started.send(None)  # as around each request: old connections are closed
        try:
            target = {"target": f"line:{number % 3}"} if number % 2 else {}
            told: dict[str, Any] = {"id": work.using(**target).enqueue(0.05).job_id}
        except Exception as error:  # noqa: BLE001 - each answer that the caller gets is recorded
            told = {"error": type(error).__name__, "module": type(error).__module__, "text": str(error)}
        request_finished.send(None)
        sys.stdout.write(json.dumps({**told, "at": time.monotonic()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
