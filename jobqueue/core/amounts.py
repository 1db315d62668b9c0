"""Numbers in sentences: plurals, counts that ended at a bound, lengths of time."""

from __future__ import annotations


def bounded(number: int, more: bool) -> str:
    """Return a count as text, with a plus sign if the count ended at its bound, as in "10,000+"."""
    return f"{number:,}{'+' if more else ''}"


def plural(number: int, noun: str, nouns: str = "", *, more: bool = False) -> str:
    """Return a number and its noun: "1 job", "2 jobs", "10,000+ jobs"."""
    return f"{bounded(number, more)} {noun if number == 1 and not more else nouns or f'{noun}s'}"


def verb(number: int, one: str, several: str, *, more: bool = False) -> str:
    """Return the form of a verb that a count needs: "1 job is", "0 jobs are", "2 jobs are"."""
    return one if number == 1 and not more else several


def span(seconds: float) -> str:
    """Return a length of time in words, to follow "the last": "hour", or "90 s"."""
    for length, noun in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length and seconds % length == 0:
            number = int(seconds // length)
            return noun if number == 1 else f"{number:,} {noun}s"
    return f"{seconds:g} s"
