"""Recordings made tick by tick, for the faults of recording and replay."""

from tests.record.conftest import producer, taping

__all__ = ["producer", "taping"]
