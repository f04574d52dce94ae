"""Fixtures of the exporter's tests: a watch whose windows end when the test says, and a real server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.server import Server
from neuron_ds.exporter.watch import Watch
from tests.exporter.helpers import NO_INSTANCE


@pytest.fixture
def watch(driver: SoftwareDriver) -> Iterator[Callable[..., Watch]]:
    """Make a Watch over the test's devices; no window ends by itself."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            Watch(driver, **{"window_s": 3600, "sample_hz": 0, "instance": NO_INSTANCE, **options})
        )


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Serve a Watch on a free port of loopback."""
    with ExitStack() as stack:

        def start(watch: Watch, **options) -> Server:
            server = stack.enter_context(Server(watch, "127.0.0.1", 0, **options))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server

        yield start
