"""What tests of simulated processes ask of them."""

from neuron_ds import attach
from neuron_ds.simulate import SimulatedProcess


def differences(process: SimulatedProcess) -> list[str]:
    """Between what its slabs hold and what the simulator expects of them."""
    found = []
    for device, slab in process.expected().items():
        with attach(process.pid, device) as reader:
            found += slab.differences(reader.snapshot())
    return found
