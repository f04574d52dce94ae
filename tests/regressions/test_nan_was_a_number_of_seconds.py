"""`--seconds nan` ran for ever, and 1e18 ended in an OverflowError: click's range lets nan through."""

import pytest

from neuron_ds.cli import main
from neuron_ds.simulate.__main__ import main as simulated


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e18", "-1", "x", ""])
@pytest.mark.parametrize(
    "option", [["simulate", "--seconds"], ["simulate", "--speed"], ["demo", "--seconds"], ["sysfs", "--every"]]
)
def test_a_number_is_finite_and_within_its_bounds(option, value, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("NEURON_DS_DIR", str(tmp_path / "ds"))
    assert main([*option, value], standalone_mode=False) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "no finite number from" in err
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    "option", ["--seconds=nan", "--seconds=inf", "--seconds=1e18", "--speed=nan", "--speed=1e-300"]
)
def test_a_process_by_hand_refuses_it_too(option, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("NEURON_DS_DIR", str(tmp_path / "ds"))
    with pytest.raises(SystemExit) as e:
        simulated(["idle", option])
    assert e.value.code == 2
    assert option.partition("=")[0] in capsys.readouterr().err
