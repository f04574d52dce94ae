"""A recorder that was ended before its first look (``--seconds 0``) left a file that nothing could open; a ``--device``
that isn't there was recorded without a word; a time of 400 digits was an OverflowError."""

import pytest

from neuron_ds.cli import main
from neuron_ds.errors import BadValue
from neuron_ds.record.replay import seconds_of, time_of


def test_there_is_always_one(driver, producer, taping):
    tape = taping()
    with tape.read() as recording:
        (sample,) = recording.samples()
        assert [p.owner.pid for p in sample.processes] == [producer.pid]
        assert recording.counts.ticks == 1


def test_a_device_that_is_not_there_is_named(root, producer, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NEURON_DS_DIR", root)
    monkeypatch.setenv("NEURON_DS_DRIVER", "software")
    output = str(tmp_path / "a.mcap")
    assert main(["record", "-o", output, "--seconds", "0", "-d", "7"], standalone_mode=False) == 0
    assert "there is no device 7, so far" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "h", "-" + "9" * 400, "1" + "0" * 15 + "h"])
def test_no_time_is_as_long(text, driver, producer, taping):
    tape = taping()
    tape.tick()
    with tape.read() as recording, pytest.raises(BadValue, match="no time"):
        time_of(recording, text)
    with pytest.raises(BadValue):
        seconds_of(text)
