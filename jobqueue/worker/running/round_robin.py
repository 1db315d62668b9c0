"""Turns: the tenants that have queued jobs, each to be served in turn, so that nobody's flood makes the others wait."""

from __future__ import annotations

from collections import deque


class RoundRobin:
    """Keep who has something queued, as far as we know, in the order of their turns.

    Somebody who was just told to have new work does not wait until all those have had their turn who were merely found to have some.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self._told: dict[str, int] = {}  # with the number of the event since which they wait
        self._order: dict[str, int] = {}
        self._number = 0
        self._told_is_next = True

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._told) + len(self._order)

    def hear(self, tenant: str) -> None:
        """Note that a tenant was just told to have something queued; a new one comes soon."""
        if tenant not in self._order:
            self._told.setdefault(tenant, self._next())

    def find(self, tenant: str) -> None:
        """Note that a tenant was found to have something queued; a new one comes last."""
        if tenant not in self._told:
            self._order.setdefault(tenant, self._next())

    def round(self) -> deque[str]:
        """Return whose turn it is, in order: by turns one of those that were told of, and whoever has waited for longest."""
        if not self._told:
            return deque(self._order)
        told, others, told_is_next = deque(self._told.items()), deque(self._order.items()), self._told_is_next
        order = deque[str]()
        while told and others:
            told_is_next = told_is_next or told[0][1] < others[0][1]
            order.append((told if told_is_next else others).popleft()[0])
            told_is_next = not told_is_next
        order.extend(tenant for tenant, _ in (*told, *others))
        return order

    def served(self, tenant: str) -> None:
        """Let a tenant's next turn come after everybody else's."""
        was_told = tenant in self._told
        if self.drop(tenant):
            self._order[tenant] = self._next()
            self._told_is_next = not was_told

    def drop(self, tenant: str) -> bool:
        """Note that a tenant has nothing more; return whether it had a turn."""
        return self._told.pop(tenant, None) is not None or self._order.pop(tenant, None) is not None

    def _next(self) -> int:
        self._number += 1
        return self._number


def share(slots: int, tenants: int) -> int:
    """Return how many of the slots the next of so many tenants may take: an even part, rounded up."""
    return -(-slots // tenants)
