"""Sums of memory gauges that stay what they say: the total is always that of the parts that were let in.

A gauge that fell below zero reads as a number near 2**64. It counts as 0, and the error says which it was. This module
knows numbers only.
"""

from __future__ import annotations

#: The largest integer that readers of the stream take.
MAX_INTEGER = (1 << 63) - 1


class Sum:
    """Takes gauges one by one. What can't be true goes to ``errors`` and counts as 0."""

    __slots__ = ("_errors", "total")

    def __init__(self, errors: list[str]) -> None:
        self._errors = errors
        self.total = 0

    def take(self, value: int, where: str, gauge: str) -> int:
        """The value as it counts: itself, or 0."""
        if value > MAX_INTEGER:
            self._errors.append(f"{where}: {gauge} has fallen below zero ({value - (1 << 64)}); counted as 0")
            return 0
        if self.total + value > MAX_INTEGER:
            self._errors.append(f"{where}: {gauge} is {value}, more than there can be with the rest; counted as 0")
            return 0
        self.total += value
        return value

    def fill(self, value: int) -> int:
        """What is missing until the total is ``value``; 0 if it is more already."""
        rest = max(0, value - self.total)
        self.total += rest
        return rest
