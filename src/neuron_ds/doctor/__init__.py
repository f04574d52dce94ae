"""Why there is nothing to see: every reason that can be found out from here, each with what to do about it.

Each function looks at one thing and gives what it found; ``examine`` asks them all, in the order in which one would
look by hand. It reads, attaches for a moment, and repairs nothing. It knows the drivers; how findings are printed and
what they mean for an exit code is not its business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from neuron_ds.doctor import directories, nodes
from neuron_ds.doctor.devices import devices
from neuron_ds.doctor.finding import Finding, split
from neuron_ds.driver import Driver, get_driver, kernel
from neuron_ds.driver import directory as d
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import BadValue, NeuronDSError

__all__ = ["Finding", "examine", "environment", "choice", "hardware"]

DRIVER_VARIABLE = "NEURON_DS_DRIVER"
#: Variables that decide where is looked, besides all that begin with NEURON_DS_.
VARIABLES = ("NEURON_PROCESS_TAG", "NEURON_LOGICAL_NC_CONFIG")


def examine(*, proc: str = "/proc", module: str = nodes.MODULE) -> list[Finding]:
    """Everything there is to say, in the order of looking.

    ``proc`` is where the kernel shows processes, ``module`` where it shows that the driver's module is loaded.
    """
    found = list(environment())
    try:
        driver = get_driver()
    except NeuronDSError as e:
        return [*found, Finding("problem", "driver", *split(e, f"unset {DRIVER_VARIABLE}"))]
    found += choice(driver)
    found += hardware(driver, module)
    numbers: list[int] = []
    if isinstance(driver, SoftwareDriver):
        found += directories.directories(driver.roots())
    try:
        numbers = driver.devices()
    except NeuronDSError as e:
        if not any(f.level == "problem" for f in found):
            found.append(Finding("problem", "device", *split(e)))
    else:
        found += devices(driver, numbers, proc, module)
    if isinstance(driver, SoftwareDriver):
        roots = [root for root, _ in driver.roots()]
        found += directories.space(roots[0], needed=not numbers)
        found += directories.elsewhere(roots, proc)
    else:
        found += directories.elsewhere([], proc, with_variables=f"{DRIVER_VARIABLE}=software ")
    return found


def environment() -> Iterator[Finding]:
    """The variables that change where we look."""
    told = {n: v for n, v in sorted(os.environ.items()) if v and (n.startswith("NEURON_DS_") or n in VARIABLES)}
    if not told:
        yield Finding("ok", "environment", "no NEURON_DS_ variable is set: the defaults hold")
    for name, value in told.items():
        yield Finding("ok", "environment", f"{name}={value}")
    try:
        d.reader_group()
    except BadValue as e:
        yield Finding("problem", "environment", e.message, "name an existing group, or unset NEURON_DS_GROUP")


def choice(driver: Driver) -> Iterator[Finding]:
    """Which driver it is, and why this one."""
    if os.environ.get(DRIVER_VARIABLE, "auto") not in ("", "auto"):
        yield Finding("ok", "driver", f"{driver.name}, as {DRIVER_VARIABLE} says")
    else:
        there = "there is a device node" if driver.name == "kernel" else "there is no device node"
        yield Finding("ok", "driver", f"{driver.name}, because {there} in {kernel.dev_root()}")


def hardware(driver: Driver, module: str = nodes.MODULE) -> Iterator[Finding]:
    """Real accelerators that are not looked at."""
    if driver.name == "kernel":
        return
    root, numbers = kernel.dev_root(), kernel.node_numbers()
    if numbers:
        yield Finding(
            "warn",
            "hardware",
            f"{len(numbers)} accelerator nodes in {root}, but the driver chosen is {driver.name}",
            f"to look at them, unset {DRIVER_VARIABLE} or set it to kernel",
        )
    elif nodes.is_loaded(module):
        yield Finding(
            "warn",
            "hardware",
            f"the neuron module is loaded, but there is no device node in {root}: its devices are not looked at",
            nodes.NODES_MISSING,
        )
