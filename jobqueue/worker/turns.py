"""Turns: the tenants that have queued jobs, each to be served in turn, so that nobody's flood makes the others wait."""

from __future__ import annotations

from collections import deque


class Turns:
    """Keep who has something queued, as far as we have heard, in the order of their turns."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._order: dict[str, None] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._order)

    def hear(self, tenant: str) -> None:
        """Note that a tenant has something queued; a new one comes last."""
        self._order.setdefault(tenant)

    def round(self) -> deque[str]:
        """Return whose turn it is, in order."""
        return deque(self._order)

    def served(self, tenant: str) -> None:
        """Let a tenant's next turn come after everybody else's."""
        if tenant in self._order:
            del self._order[tenant]
            self._order[tenant] = None

    def drop(self, tenant: str) -> bool:
        """Note that a tenant has nothing more; return whether it had a turn."""
        known = tenant in self._order
        self._order.pop(tenant, None)
        return known


def share(slots: int, tenants: int) -> int:
    """Return how many of the slots the next of so many tenants may take: an even part, rounded up."""
    return -(-slots // tenants)
