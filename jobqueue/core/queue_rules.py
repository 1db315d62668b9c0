"""The queues that a worker serves: names, prefixes such as ``mail-*``, and exclusions such as ``!mail-bulk``.

A queue is served if no item excludes it, and either an item includes it, or all items are exclusions. The order
of the items does not matter.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobqueue.core.texts import clean, safe_repr

MAX_NAME = 200
TEXT = "a list of queue names, prefixes such as mail-*, and exclusions such as !mail-bulk"


@dataclass(frozen=True, slots=True)
class ServedQueues:
    """The rule for the queues that are served; without items, it serves all."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    without_prefixes: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        """Whether every queue is served."""
        return not (self.names or self.prefixes or self.without or self.without_prefixes)

    @property
    def has_patterns(self) -> bool:
        """Whether the items do not list all served queues by name, so that a worker must query which of the existing queues it serves."""
        return not self.is_all and (bool(self.prefixes) or not self.names)

    @property
    def listed(self) -> tuple[str, ...]:
        """The names of queues that the items contain, whether included or excluded."""
        return (*self.names, *self.without)

    def matches(self, queue: str) -> bool:
        """Return whether a queue is served."""
        return self._includes(queue) and not _is_among(queue, self.without, self.without_prefixes)

    def condition(self, column: str) -> tuple[str, list[str]]:
        """Return the SQL condition on a column, beginning with AND, and its parameters; empty if all queues are served.

        It uses `substr`, which is the same in PostgreSQL and SQLite. LIKE has special characters, and ignores case in
        SQLite.
        """
        included, included_params = _among(column, "IN", "=", self.names, self.prefixes)
        excluded, excluded_params = _among(column, "NOT IN", "<>", self.without, self.without_prefixes)
        sql = [f" AND ({' OR '.join(included)})"] if len(included) > 1 else [f" AND {condition}" for condition in included]
        return "".join([*sql, *(f" AND {condition}" for condition in excluded)]), [*included_params, *excluded_params]

    def _includes(self, queue: str) -> bool:
        return not (self.names or self.prefixes) or _is_among(queue, self.names, self.prefixes)


ALL = ServedQueues()


class ItemProblem(NamedTuple):
    """A problem of an item, and its remedy."""

    text: str
    fix: str


@functools.lru_cache(maxsize=1000)
def parse(items: tuple[str, ...]) -> ServedQueues:
    """Return the rule of items. It accepts items that `problem` rejects, so that a row with wrong items can be shown."""
    included = [item for item in items if not item.startswith("!")]
    excluded = [item[1:] for item in items if item.startswith("!")]
    if "*" in included:
        included = []
    return ServedQueues(*_split(included), *_split(excluded))


def parse_stored(items: Any) -> ServedQueues | None:
    """Return the rule of items from the row of a worker.

    Return None if they serve no queue at all, which only raw SQL can have written.
    """
    texts = tuple(item for item in items if isinstance(item, str)) if isinstance(items, list) else ()
    return None if isinstance(items, list) and items and not texts else parse(texts)


def problem(items: Sequence[str]) -> ItemProblem | None:
    """Return the first problem of items, or None if they can be served."""
    return next(_problems(items), None)


def _problems(items: Sequence[str]) -> Iterator[ItemProblem]:
    for item in items:
        yield from _of_one(item)
    twice = [item for index, item in enumerate(items) if item in items[:index]]
    if twice:
        yield ItemProblem(f"{safe_repr(twice[0])} is listed twice.", "List it once.")
    for item in items:
        for other in items:
            if other.startswith("!") and not item.startswith("!") and _covers(other[1:], item):
                text = f"{safe_repr(item)} is included, and excluded by {safe_repr(other)}."
                yield ItemProblem(text, "Remove one of the two: what is excluded is never served.")


def _of_one(item: str) -> Iterator[ItemProblem]:
    name = item.removeprefix("!")
    if not item.strip():
        yield ItemProblem("An item is empty.", "Remove it, or the extra comma.")
    elif item in ("!", "!*"):
        effect = "excludes nothing" if item == "!" else "excludes all queues"
        yield ItemProblem(f"{item!r} {effect}.", "Write the name or the prefix of the excluded queues, such as !mail-bulk or !mail-*.")
    elif name != item and (name.startswith("!") or name.strip() != name):
        yield ItemProblem(f"{safe_repr(item)} has more than one ! or a space around the name.", "Write it as !mail-bulk.")
    elif "*" in name[:-1]:
        yield ItemProblem(f"{safe_repr(item)} has * before its end.", "Write it last: mail-* means all names that begin with mail-.")
    elif (length := len(name.removesuffix("*"))) > MAX_NAME:
        yield ItemProblem(f"{safe_repr(item)} has {length} characters.", f"Write at most {MAX_NAME}: no queue has a longer name.")
    elif clean(name) != name:
        yield ItemProblem(f"{safe_repr(item)} has a character that no queue name has.", "Remove NUL and lone surrogates.")


def _covers(pattern: str, item: str) -> bool:
    """Return whether a pattern covers all that an item includes."""
    return item.startswith(pattern[:-1]) if pattern.endswith("*") else item == pattern


def _split(items: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = tuple(item for item in items if not item.endswith("*"))
    return names, tuple(item[:-1] for item in items if item.endswith("*"))


def _is_among(queue: str, names: tuple[str, ...], prefixes: tuple[str, ...]) -> bool:
    return queue in names or queue.startswith(prefixes)


def _among(column: str, among: str, equals: str, names: tuple[str, ...], prefixes: tuple[str, ...]) -> tuple[list[str], list[str]]:
    listed = [f"{column} {among} ({', '.join('%s' for _ in names)})"] if names else []
    return [*listed, *(f"substr({column}, 1, {len(prefix)}) {equals} %s" for prefix in prefixes)], [*names, *prefixes]


def limit_of(stored: object) -> int:
    """Return the limit that a queue's row holds. SQLite stores any value in any column; with one that is no number, no job may run."""
    return stored if isinstance(stored, int) else 0
