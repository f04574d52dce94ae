"""A second signal while the first was being heeded left a traceback of Python's on standard error."""

from __future__ import annotations

import signal

import pytest

from neuron_ds.cli.run import STOP_SIGNALS, until_stopped


def test_signals_that_come_together_end_it_once(monkeypatch):
    unraised: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unraised.append)
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    reached = False
    with until_stopped():
        # To this thread: another one might take them when the block is left already, and the tests would end. Held
        # back, they all arrive at once: each is on its way when the first is heeded.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        for number in STOP_SIGNALS:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        reached = True
    assert not reached
    assert unraised == []
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_one_that_comes_while_it_clears_up_is_not_heeded(number):
    cleared = False
    with until_stopped():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(number)
            cleared = True
    assert cleared
