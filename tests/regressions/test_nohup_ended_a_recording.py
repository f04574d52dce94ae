"""``nohup neuron-ds record`` ended with the terminal all the same, and so did ``export`` and ``report``."""

import signal

import pytest

from neuron_ds.cli.export import _reading
from neuron_ds.cli.record import signals


def asked_to_hang_up(enter) -> bool:
    """Whether a SIGHUP that was ignored before is heeded inside."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with enter():
            return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("ask", [True, False])
def test_a_recorder_lets_be_what_is_ignored(ask):
    assert not asked_to_hang_up(lambda: signals(ask=ask))


def test_so_does_an_export(driver, producer, taping):
    tape = taping()
    tape.tick()
    tape.end()
    assert not asked_to_hang_up(lambda: _reading(tape.path, None, None))
