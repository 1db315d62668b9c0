"""The turns of the tenants that have queued jobs, so that a backlog of one tenant does not delay other tenants."""

from __future__ import annotations

from collections import deque


class RoundRobin:
    """The tenants that are known to have queued jobs, in the order of their turns.

    A tenant whose new work was notified does not wait until all tenants have had their turn whose work was merely found by a query.
    """

    def __init__(self) -> None:
        """Begin with no tenants."""
        self._notified: dict[str, int] = {}  # with the number of the event since which they wait
        self._order: dict[str, int] = {}
        self._number = 0
        self._notified_is_next = True

    def __len__(self) -> int:
        """Return the number of tenants that have a turn."""
        return len(self._notified) + len(self._order)

    def notified(self, tenant: str) -> None:
        """Record that a notification reported work of a tenant; a new tenant gets an early turn."""
        if tenant not in self._order:
            self._notified.setdefault(tenant, self._next())

    def found(self, tenant: str) -> None:
        """Record that a query found work of a tenant; a new tenant gets the last turn."""
        if tenant not in self._notified:
            self._order.setdefault(tenant, self._next())

    def round(self) -> deque[str]:
        """Return the tenants in the order of their turns: alternately a notified one and the one that has waited longest."""
        if not self._notified:
            return deque(self._order)
        told, others, told_is_next = deque(self._notified.items()), deque(self._order.items()), self._notified_is_next
        order = deque[str]()
        while told and others:
            told_is_next = told_is_next or told[0][1] < others[0][1]
            order.append((told if told_is_next else others).popleft()[0])
            told_is_next = not told_is_next
        order.extend(tenant for tenant, _ in (*told, *others))
        return order

    def served(self, tenant: str) -> None:
        """Move a tenant's next turn behind those of all other tenants."""
        was_told = tenant in self._notified
        if self.drop(tenant):
            self._order[tenant] = self._next()
            self._notified_is_next = not was_told

    def drop(self, tenant: str) -> bool:
        """Record that a tenant has no more work; return whether it had a turn."""
        return self._notified.pop(tenant, None) is not None or self._order.pop(tenant, None) is not None

    def _next(self) -> int:
        self._number += 1
        return self._number


def share(slots: int, tenants: int) -> int:
    """Return how many of the slots the next of N tenants may take: an even part, rounded up."""
    return -(-slots // tenants)
