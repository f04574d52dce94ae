"""What importing the package loads, hands out and refuses; each in a process of its own, since a module loads once."""

import json
import subprocess
import sys

import pytest

import neuron_ds
from neuron_ds import _core

#: What a program that wants one counter should not have to wait for.
HEAVY = {
    "asyncio",
    "ctypes",
    "dataclasses",
    "enum",
    "importlib.metadata",
    "inspect",
    "json",
    "logging",
    "pathlib",
    "re",
    "socket",
    "struct",
    "subprocess",
    "tempfile",
    "threading",
    "typing",
    "weakref",
}
#: What only comes with an extra, or with the command.
EXTRAS = {"click", "prometheus_client", "msgspec", "mcap", "textual", "opentelemetry", "starlette", "numpy", "psutil"}


def loaded(code):
    """The modules that a process has loaded when it has run the code."""
    run = f"import sys\n{code}\nnames = list(sys.modules)\nimport json\nprint(json.dumps(names))"
    out = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True).stdout
    return set(json.loads(out.splitlines()[-1]))


def ours(modules):
    return {name for name in modules if name.partition(".")[0] == "neuron_ds"}


@pytest.fixture(scope="module")
def bare():
    """What any process here has loaded, by its environment's own doing."""
    return loaded("pass")


def test_the_import_loads_the_core_the_layout_and_the_errors(bare):
    modules = loaded("import neuron_ds") - bare
    assert ours(modules) == {"neuron_ds", "neuron_ds._core", "neuron_ds.errors", "neuron_ds.layout"}
    assert modules & HEAVY == set()


@pytest.mark.parametrize("name", ["layout", "errors"])
def test_what_was_loaded_anyway_costs_nothing_more(bare, name):
    assert loaded(f"import neuron_ds; neuron_ds.{name}") - bare == loaded("import neuron_ds") - bare


def test_no_use_of_the_package_loads_an_extra():
    code = """
import os, tempfile
import neuron_ds
from neuron_ds import Runtime, devices, owners
from neuron_ds.driver.software import SoftwareDriver
[getattr(neuron_ds, name) for name in neuron_ds.__all__]
with tempfile.TemporaryDirectory() as path:
    os.environ["NEURON_DS_DIR"] = path
    with neuron_ds.publish() as ds:
        Runtime(ds).execution_ended(3, busy_us=7)
        with neuron_ds.attach(os.getpid()) as reader:
            assert reader.snapshot().core(3).time_in_use == 7
        devices(), owners(0)
"""
    assert {name.partition(".")[0] for name in loaded(code)} & EXTRAS == set()


def test_a_driver_is_loaded_with_its_first_use_only():
    assert "neuron_ds.driver.software" not in loaded("from neuron_ds import publish, attach, Snapshot, Runtime")


# --- What it hands out


@pytest.mark.parametrize("name", neuron_ds.__all__)
def test_every_public_name_resolves(name):
    value = getattr(neuron_ds, name)
    assert value is getattr(neuron_ds, name)
    assert getattr(value, "__name__", name) in (name, f"neuron_ds.{name}")


def test_dir_and_all_are_the_same_and_nothing_is_handed_out_beside_them():
    assert dir(neuron_ds) == sorted(neuron_ds.__all__)
    assert len(set(neuron_ds.__all__)) == len(neuron_ds.__all__)
    assert set(neuron_ds._HOME) == set(neuron_ds.__all__) - {"errors", "layout"}


def test_a_star_import_gives_all_of_them():
    loaded("import neuron_ds\nfrom neuron_ds import *\nassert set(neuron_ds.__all__) <= set(globals())")


@pytest.mark.parametrize("name", ["colour", "Publish", "__path", "datastores"])
def test_another_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'neuron_ds' has no attribute '{name}'"):
        getattr(neuron_ds, name)
    assert not hasattr(neuron_ds, name)


# --- What it refuses


@pytest.mark.parametrize(
    ("pretend", "said"),
    [
        ("sys.platform = 'darwin'", "needs Linux on a little-endian machine"),
        ("sys.byteorder = 'big'", "needs Linux on a little-endian machine"),
        ("sys.abiflags = 't'", "needs a Python with the GIL"),
    ],
)
def test_another_machine_is_refused_plainly(pretend, said):
    code = f"import sys; {pretend}\ntry: import neuron_ds\nexcept ImportError as e: print(e)\nelse: print('loaded')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said in done.stdout


def test_a_core_of_another_layout_is_refused(monkeypatch):
    ours = _core.layout_report()
    for at, value in enumerate(ours):
        other = [*value[:-1], value[-1] + 1] if isinstance(value, list) else value + 8
        monkeypatch.setattr(_core, "layout_report", lambda at=at, other=other: (*ours[:at], other, *ours[at + 1 :]))
        with pytest.raises(ImportError, match="another layout table; rebuild the package"):
            neuron_ds._compare_layouts()
