"""Named steps of acquire, release and publish, so that a test can stop or kill a process at each of them.

Without a hook a step costs one comparison. This module knows no driver.
"""

from __future__ import annotations

from collections.abc import Callable

from neuron_ds import _core

_hook: Callable[[str], object] | None = None


def set_hook(hook: Callable[[str], object] | None) -> None:
    """Call ``hook(name)`` at every step of this process from now on; None ends it."""
    global _hook
    _hook = hook
    _core.set_step_hook(hook)


def step(name: str) -> None:
    """A step is reached."""
    if _hook is not None:
        _hook(name)
