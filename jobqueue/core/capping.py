"""Cut large JSON values before they are masked and shown.

Masking and showing take time that grows with the value, and pages show only the beginning.
"""

from collections.abc import Mapping

from jobqueue.core.masking import PLAIN, Mask

SHOWN_BYTES = 65_536  # of one value in a stream or on a page
MAX_BYTES = 5_000_000  # of one value in a report; what tasks store is smaller (payload.MAX_BYTES)
WHOLE = 2**63
MAX_DEPTH = 100
CUT = "…"


def capped(value: object, most: int = SHOWN_BYTES, mask: Mask = PLAIN) -> object:
    """Return a copy of a JSON value with at most its first `most` characters, and a mark at each place where something is cut.

    `mask` hides secrets in a text before it is cut, because a cut secret would be shown. The caller masks the rest of
    the value.
    """
    return _Cap(most, mask).of(value, MAX_DEPTH)


class _Cap:
    """The number of characters that may still be shown."""

    def __init__(self, most: int, mask: Mask) -> None:
        self.rest, self.mask = most, mask

    def of(self, value: object, depth: int) -> object:
        """Return as much of a value as the rest of the budget allows."""
        if isinstance(value, str):
            return self.text(value)
        self.rest -= 4
        if not isinstance(value, Mapping | list | tuple):
            self.rest -= value.bit_length() // 3 if isinstance(value, int) else 4
            return value if self.rest >= 0 else CUT
        if depth <= 0:
            return CUT
        return self.mapping(value, depth - 1) if isinstance(value, Mapping) else self.items(value, depth - 1)

    def text(self, value: str) -> str:
        """Return the beginning of a text."""
        keep = max(self.rest - 2, 0)
        self.rest -= len(value) + 2
        if len(value) <= keep:
            return value
        return f"{self.mask(value[: keep + self.mask.overlap])[:keep]}{CUT} [{len(value):,} characters in all]"

    def mapping(self, value: Mapping[object, object], depth: int) -> dict[object, object]:
        """Return the first items of an object."""
        shown: dict[object, object] = {}
        for key, item in value.items():
            if self.rest <= 0:
                shown[CUT] = f"{len(value) - len(shown):,} more"
                break
            self.rest -= len(str(key)) + 4
            shown[key] = self.of(item, depth)
        return shown

    def items(self, value: list[object] | tuple[object, ...], depth: int) -> list[object]:
        """Return the first items of a list."""
        shown: list[object] = []
        for item in value:
            if self.rest <= 0:
                shown.append(f"{CUT} {len(value) - len(shown):,} more")
                break
            shown.append(self.of(item, depth))
        return shown
