"""The command ``neuron-ds``: arguments and wiring, nothing that another program could want.

``main`` is the entry point. What each command prints is data on standard output; everything else is talk, on standard
error. The rooms that do the work are imported by the command that needs them, so that ``--help`` stays quick.
"""

from __future__ import annotations

from neuron_ds.cli.base import main
from neuron_ds.cli.device import reset, sysfs
from neuron_ds.cli.exporter import exporter
from neuron_ds.cli.look import check, doctor, ls, show
from neuron_ds.cli.monitor import monitor
from neuron_ds.cli.run import demo, simulate

__all__ = ["main"]

for command in (demo, ls, show, check, doctor, monitor, exporter, simulate, sysfs, reset):
    main.add_command(command)
