"""The memory of a worker process: its size, and settings that keep fragmentation low."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import sys
from pathlib import Path

M_ARENA_MAX = -8  # of glibc's malloc.h
ARENAS = 2
GC_THRESHOLD = (10_000, 20, 20)


def prepare_memory() -> None:
    """Set up the heaps and the garbage collector of a worker that has loaded its project.

    The loaded objects stay until the end, so the collector skips them, and runs less often than after every 700 objects.
    """
    use_few_arenas()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def use_few_arenas() -> None:
    """Limit the heaps (arenas) of glibc to `ARENAS` for all threads; call this before threads start.

    Else each thread has a heap, which fragments: a worker grows by some MB in its first million jobs. The limit costs no speed, since
    only one thread runs Python at a time. With another C library, this does nothing.
    """
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def rss_mb() -> float:
    """Return the resident memory of this process in MB; if the system does not report it, return the maximum so far."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
