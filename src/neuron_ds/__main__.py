"""``python -m neuron_ds``: the same as ``neuron-ds``, where that is not on the path."""

from neuron_ds.cli import main

if __name__ == "__main__":
    main(prog_name="neuron-ds")
