"""Numbers in sentences: plurals, and counts that ended at a bound."""

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
