"""Make readable texts that any database can store, even from an exception whose methods fail.

All functions that take an exception are safe: its ``__str__``, ``__repr__`` or ``__notes__`` may raise anything, its
chain may be endless, its traceback may have a million frames. The amount is limited before anything is rendered.
Local variables are not shown.
"""

import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, TracebackType
from typing import Protocol

from jobqueue.core.amounts import plural, verb

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SUMMARY_CHARACTERS = 500
LINE_CHARACTERS = 500
FIRST_FRAMES = 10
LAST_FRAMES = 20
CHAIN_LENGTH = 8
GROUP_WIDTH = 5
GROUP_DEPTH = 3
MAX_EXCEPTIONS = 20
MAX_NOTES = 5
CAUSE = "\nThe above exception was the direct cause of the following exception:\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n"

# Texts of frames, by the places of the frames: as Python shows them, and with secrets hidden, by the names of the
# secrets.
KEPT_TEXTS = 200
_kept: dict[tuple[tuple[str, CodeType, int, int], ...], tuple[str, dict[tuple[str, ...], str]]] = {}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """Return the text with NUL characters and lone surrogates replaced, which PostgreSQL refuses in text and jsonb."""
    return text if text.isascii() and "\0" not in text else _UNSTORABLE.sub(REPLACEMENT, text)  # the test is much faster


def ascii_only(text: str) -> str:
    """Return the text with all characters that are not ASCII escaped, for a database or an output that accepts nothing else."""
    return clean(text).encode("ascii", "backslashreplace").decode()


def printable(text: str) -> str:
    """Return the text with all unprintable characters escaped, such as line breaks and control sequences of a terminal."""
    return (
        text
        if text.isprintable()
        else "".join(character if character.isprintable() else character.encode("unicode_escape").decode("ascii") for character in text)
    )


class Hide(Protocol):
    """A callable that hides secrets in a text; `overlap` is how far beyond a cut it must read."""

    overlap: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of secrets that are not searched for in every text."""

    def __call__(self, text: str) -> str:
        """Return the text with its secrets hidden."""

    def known(self, text: str) -> str:
        """Return the text in which only the known secret values are hidden."""


def shorten(text: str, limit_bytes: int, hide: Hide | None = None) -> str:
    """Return at most the first ``limit_bytes`` bytes of the text, as UTF-8, with a mark if it was cut.

    Secrets are hidden before the cut. In a text that is much too long, only the part up to the limit is searched.
    """
    if hide is None:
        return _cut(text, limit_bytes, tail_share=0.0)
    if len(text) <= limit_bytes + hide.overlap:
        return _cut(hide(text), limit_bytes, tail_share=0.0)
    size = len(text.encode("utf-8", "replace"))
    return _marked(hide(text[: limit_bytes + hide.overlap]).encode("utf-8", "replace"), limit_bytes, 0.0, size)


def safe_repr(value: object, limit_bytes: int = 200) -> str:
    """Return a short ``repr``, or a placeholder if it raises."""
    return shorten(_safely(repr, value), limit_bytes)


def exception_path(exception: BaseException) -> str:
    """Return the dotted path of the exception's class, as in ``"builtins.ValueError"``."""
    kind = type(exception)
    return shorten(clean(f"{_class_attribute(kind, '__module__')}.{_class_attribute(kind, '__qualname__')}"), SUMMARY_CHARACTERS)


def exception_summary(exception: BaseException, hide: Hide | None = None) -> str:
    """Return the exception's name and message as one line of at most 500 characters; `hide` hides secrets before the cut."""
    line = " ".join(_headline(exception, 4 * SUMMARY_CHARACTERS, hide).split())
    return line if len(line) <= SUMMARY_CHARACTERS else line[: SUMMARY_CHARACTERS - 1] + "…"


def error_text(exception: BaseException, limit_bytes: int = 64_000, *, skip_frames: int = 0, hide: Hide | None = None) -> str:
    """Return the traceback of an exception and its chain as text of at most ``limit_bytes`` bytes; never raise.

    ``skip_frames`` is the number of the outermost frames of the exception itself that are omitted, because they are
    the caller's. If it has no other frames, they are shown.
    """
    try:
        text = "\n".join(_Renderer(limit_bytes // 8, hide).chain(exception, skip_frames, depth=0))
    except BaseException:  # noqa: BLE001 - the text of an error must not become an error itself
        text = f"{exception_summary(exception, hide)}\n(The traceback could not be shown.)"
    return _cut(clean(text), limit_bytes, tail_share=0.5)


class _Renderer:
    """A renderer of exceptions into lines, up to a number of exceptions."""

    def __init__(self, message_bytes: int, hide: Hide | None) -> None:
        """Store the maximum length of a message, and the callable that hides its secrets."""
        self.message_bytes, self.hide = message_bytes, hide
        self.left = MAX_EXCEPTIONS

    def chain(self, exception: BaseException, skip_frames: int, depth: int) -> Iterator[str]:
        """Yield the lines of an exception, those of its causes first."""
        links = _chain(exception)
        if len(links) > CHAIN_LENGTH:
            half = CHAIN_LENGTH // 2
            between = f"between the first {half} and the last {half} of this chain"
            yield f"[{_left_out(len(links) - CHAIN_LENGTH, 'exception', between)}]"
            links = links[:half] + links[-half:]
        for link, joint in reversed(links):
            yield from self.one(link, skip_frames if link is exception else 0, depth)
            if joint:
                yield joint

    def one(self, exception: BaseException, skip_frames: int, depth: int) -> Iterator[str]:
        """Yield the lines of an exception without its chain."""
        if self.left <= 0:
            yield "[more exceptions are left out]"
            return
        self.left -= 1
        yield from _frames(exception.__traceback__, skip_frames, self.hide)
        yield _headline(exception, self.message_bytes, self.hide)
        yield from _notes(exception, self.message_bytes, self.hide)
        if isinstance(exception, BaseExceptionGroup):
            yield from self.members(exception, depth + 1)

    def members(self, group: BaseExceptionGroup[BaseException], depth: int) -> Iterator[str]:
        """Yield the lines of the members of a group, indented."""
        members = group.exceptions
        shown = members[:GROUP_WIDTH] if depth <= GROUP_DEPTH else ()
        for number, member in enumerate(shown, 1):
            yield f"  --- {number} of {len(members)} in this group ---"
            for line in self.chain(member, 0, depth):
                yield "  " + line.replace("\n", "\n  ")
        if len(members) > len(shown):
            hidden = len(members) - len(shown)
            yield f"  [{hidden} of {len(members)} in this group {verb(hidden, 'is', 'are')} left out]"


def _left_out(number: int, noun: str, where: str = "") -> str:
    return f"{plural(number, noun)} {where + ' ' if where else ''}{verb(number, 'is', 'are')} left out"


def _chain(exception: BaseException) -> list[tuple[BaseException, str]]:
    """Return the exception and its causes, each with the sentence that links it to the one before it; a circle is followed once."""
    links, seen = [(exception, "")], {id(exception)}
    while True:
        last = links[-1][0]
        # Never by its truth value: an exception may have a length, or a __bool__ that raises.
        cause = last.__cause__
        joint = CAUSE
        if cause is None and not last.__suppress_context__:
            cause, joint = last.__context__, CONTEXT
        if cause is None or id(cause) in seen:
            return links
        seen.add(id(cause))
        links.append((cause, joint))


def _frames(trace: TracebackType | None, skip: int, hide: Hide | None) -> Iterator[str]:
    """Yield the first and the last frames of a traceback."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    frames = frames[skip:] or frames
    if not frames:
        return
    yield "Traceback (most recent call last):"
    left_out = len(frames) - FIRST_FRAMES - LAST_FRAMES
    if left_out <= 0:
        yield _rendered(frames, hide)
        return
    yield _rendered(frames[:FIRST_FRAMES], hide)
    yield f"  [{_left_out(left_out, 'frame')}]"
    yield _rendered(frames[-LAST_FRAMES:], hide)


def _rendered(frames: Sequence[TracebackType], hide: Hide | None) -> str:
    """Return frames as Python shows them, each line bounded, with secrets hidden, because lines of source code can hold secrets.

    Most failed jobs fail in the same way, and Python parses the source for each frame, so the texts are cached. The
    text of a frame follows from its code and the place in it. Two code objects can be equal except for their files,
    so the file is part of the key.
    """
    places = tuple((frame.tb_frame.f_code.co_filename, frame.tb_frame.f_code, frame.tb_lasti, frame.tb_lineno) for frame in frames)
    cached = _kept.get(places)
    if cached is None:
        text = "\n".join(
            line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "…"
            for entry in traceback.extract_tb(frames[0], limit=len(frames)).format()
            for line in entry.splitlines()
        )
        if len(_kept) >= KEPT_TEXTS:
            _kept.clear()
        # No lock, because an interrupt of the task may be raised here. Each of these steps is atomic.
        cached = _kept[places] = (text, {})
    text, hidden_texts = cached
    if hide is None:
        return text
    if hide.known(text) != text:  # depends on the job
        return hide(text)
    names = hide.names
    if (hidden := hidden_texts.get(names)) is None:
        hidden = hidden_texts[names] = hide(text)
    return hidden


def _headline(exception: BaseException, limit_bytes: int, hide: Hide | None = None) -> str:
    """Return the exception's class and message as Python shows them."""
    kind = type(exception)
    module, name = _class_attribute(kind, "__module__"), _class_attribute(kind, "__qualname__")
    name = name if module in ("builtins", "__main__") else f"{module}.{name}"
    message = shorten(clean(_safely(str, exception)), limit_bytes, hide)
    return f"{name}: {message}" if message else name


def _notes(exception: BaseException, limit_bytes: int, hide: Hide | None) -> Iterator[str]:
    """Yield the notes that were added to an exception."""
    try:
        notes = exception.__notes__
    except BaseException:  # noqa: BLE001 - mostly AttributeError, but a property may raise anything
        return
    if isinstance(notes, list | tuple):
        for note in notes[:MAX_NOTES]:
            yield shorten(_safely(str, note), limit_bytes // MAX_NOTES, hide)
        if len(notes) > MAX_NOTES:
            yield f"[{_left_out(len(notes) - MAX_NOTES, 'note')}]"


def _class_attribute(kind: type, name: str) -> str:
    """Return the module or the name of a class, or a placeholder if it has none that is a text."""
    try:
        value = getattr(kind, name)
        return clean(str.__str__(value))
    except BaseException:  # noqa: BLE001 - a metaclass may raise anything
        return "unknown"


def _safely(convert: Callable[[object], str], value: object) -> str:
    """Return ``str(value)`` or ``repr(value)``, or a placeholder that names the exception it raised."""
    try:
        # A subclass of str may override every method that is called on the text later.
        return str.__str__(convert(value))
    except BaseException as error:  # noqa: BLE001 - also SystemExit from a __str__
        kind, raised = _class_attribute(type(value), "__qualname__"), _class_attribute(type(error), "__qualname__")
        return f"<{convert.__name__}() of this {kind} raised {raised}>"


def _cut(text: str, limit_bytes: int, tail_share: float) -> str:
    """Return the text with a mark in place of the part beyond the limit; keep a share of the limit for the end of the text."""
    if len(text) * 4 <= limit_bytes:
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit_bytes:
        return text
    return _marked(encoded, limit_bytes, tail_share, len(encoded))


def _marked(encoded: bytes, limit_bytes: int, tail_share: float, size: int) -> str:
    """Return the first and the last bytes of a text, with a mark between them that gives its full size."""
    mark = f"… [cut, {size} bytes]".encode()
    room = max(limit_bytes - len(mark) - 2, 0)
    tail = int(room * tail_share)
    if not tail:
        return (encoded[:room] + mark)[:limit_bytes].decode("utf-8", "ignore")
    return b"\n".join((encoded[: room - tail], mark, encoded[-tail:])).decode("utf-8", "ignore")
