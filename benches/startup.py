"""What a program pays for the import: whole processes, so that nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator

from benches.harness import Comparison, process


def comparisons() -> Iterator[Comparison]:
    yield Comparison(
        'python -c "import neuron_ds"',
        'python -c "import dataclasses, enum"',
        process("import neuron_ds"),
        process("import dataclasses, enum"),
        1.2,
    )
