"""Where the exporter and the monitor have names of pods from, as their option ``--pod-resources`` says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from neuron_ds.cli.base import Failure

if TYPE_CHECKING:
    from neuron_ds.kubernetes import PodResources


@contextmanager
def names_of_pods(path: str | None, wanted: bool, tell: Callable[[str], object]) -> Iterator[PodResources | None]:
    """Kubelet, where it is to be asked. Raises Failure where it was named and can't be for want of the extra."""
    if not wanted or path == "none":
        yield None
        return
    from neuron_ds.kubernetes import DEFAULT_SOCKET, MISSING, PodResources

    if path is not None and find_spec("grpc") is None:
        raise Failure(MISSING)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core writes to standard error by itself
    with PodResources(path or DEFAULT_SOCKET, tell=tell) as pods:
        yield pods
