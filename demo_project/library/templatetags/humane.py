"""Filters that format text for the library's pages."""

import re
from collections.abc import Sequence

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


@register.filter
def first_line(text: str) -> str:
    """Return the first line of a docstring."""
    return text.strip().partition("\n")[0]


@register.filter
def thousands(number: int) -> str:
    """Return a number with separators for thousands."""
    return f"{number:,}"


@register.filter
def highlight(text: str, words: Sequence[str]) -> SafeString:
    """Mark the `words` in `text`; the pieces are escaped one by one, so that neither can add markup."""
    if not words:
        return escape(text)
    pieces = re.split("(" + "|".join(re.escape(word) for word in words) + ")", text, flags=re.IGNORECASE)
    marked = (format_html("<mark>{}</mark>", piece) if at % 2 else escape(piece) for at, piece in enumerate(pieces))
    return mark_safe("".join(marked))  # noqa: S308 - each piece is escaped above
