"""``python -m neuron_ds.cli``: the same as ``neuron-ds``."""

from neuron_ds.cli import main

main(prog_name="neuron-ds")
