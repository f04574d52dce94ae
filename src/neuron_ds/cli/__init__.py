"""The command ``neuron-ds``: arguments and wiring, nothing that another program could want.

``main`` is the entry point. What each command prints is data on standard output; everything else is talk, on standard
error. The rooms that do the work are imported by the command that needs them, so that ``--help`` stays quick.
"""

from __future__ import annotations

from neuron_ds.cli.base import main
from neuron_ds.cli.device import reset, sysfs
from neuron_ds.cli.diagnose import diagnose
from neuron_ds.cli.export import export_command, report_command
from neuron_ds.cli.exporter import exporter
from neuron_ds.cli.look import check, doctor, ls, show
from neuron_ds.cli.monitor import monitor
from neuron_ds.cli.record import record
from neuron_ds.cli.run import demo, simulate
from neuron_ds.cli.top import top
from neuron_ds.cli.web import web

__all__ = ["main"]

for command in (
    demo,
    ls,
    show,
    check,
    doctor,
    diagnose,
    top,
    monitor,
    exporter,
    web,
    record,
    export_command,
    report_command,
    simulate,
    sysfs,
    reset,
):
    main.add_command(command)
