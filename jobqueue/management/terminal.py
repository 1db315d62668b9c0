"""The output of a command: a terminal with a size, colors and relative times, or a pipe or file without these."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from django.core.management.base import OutputWrapper


@dataclass(frozen=True, slots=True)
class Screen:
    """The size of a terminal, None for another output; and Django's style for colors, None for none."""

    width: int | None = None
    height: int | None = None
    style: Any = None

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads the output as it is written."""
        return self.width is not None


PLAIN: Final = Screen()
_current = ContextVar("jobqueue_screen", default=PLAIN)


def screen() -> Screen:
    """Return the output of the current command."""
    return _current.get()


def screen_of(stream: OutputWrapper, style: Any, *, force_color: bool) -> Screen:
    """Return what a stream is. `style` is that of the command, which has no colors with ``--no-color``."""
    is_terminal = stream.isatty()
    colors = style if force_color or (is_terminal and not os.environ.get("NO_COLOR")) else None
    if not is_terminal:
        return Screen(style=colors)
    size = shutil.get_terminal_size()
    return Screen(size.columns, size.lines, colors)


@contextmanager
def shown_on(screen: Screen) -> Iterator[None]:
    """Format the tables of a block for this output."""
    token = _current.set(screen)
    try:
        yield
    finally:
        _current.reset(token)
