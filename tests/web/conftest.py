"""Fixtures of the web tests: a real server on a free port of loopback, over hand-made frames or the test's devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from neuron_ds.web.others import Others
from neuron_ds.web.pump import Pump
from neuron_ds.web.server import WebServer, listen


@pytest.fixture
def serve() -> Iterator[Callable[..., WebServer]]:
    """Serve a Live, or what stands for one; a tenth of a second from frame to frame."""
    with ExitStack() as stack:

        def start(live, *, period_s=0.1, token=None, driver=None, told=lambda text: None, host="127.0.0.1", port=0):
            others = Others(driver, imds=False) if driver else None
            pump = stack.enter_context(Pump(live, period_s, told=told))
            listening = listen(host, port)
            return stack.enter_context(
                WebServer(pump, listening, title=live.title, token=token, others=others, told=told)
            )

        yield start
