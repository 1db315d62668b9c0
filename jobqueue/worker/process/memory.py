"""The memory of a worker process: how much it holds, and how it is kept from growing by nothing but holes."""

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
    """Prepare the heaps and the collector of a worker that has loaded everything.

    What was loaded stays: the collector need not walk over it again and again, nor after every 700 objects.
    """
    use_few_arenas()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def use_few_arenas() -> None:
    """Let all threads share a few of the C library's heaps, before there are threads.

    Else each has one of its own, with holes of its own: a worker grows by some MB in its first million jobs. Nothing is lost by it, since
    only one thread runs Python at a time. Where the C library is another one, nothing happens.
    """
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def rss_mb() -> float:
    """Return the resident memory of this process in MB; where the system does not tell, the most that it ever had."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
