"""The step hook was called without being held: one that took itself away was freed while it ran."""

import gc

from neuron_ds import _core, layout


class Hook:
    def __init__(self):
        self.seen = []

    def __call__(self, name):
        _core.set_step_hook(None)
        gc.collect()
        self.seen.append(name)
        seen.extend(self.seen)


seen: list[str] = []


def test_it_is_held_while_it_runs():
    mapping = _core.map(-1, 0, layout.REQUIRED_SIZE, True, None)
    _core.set_step_hook(Hook())
    mapping.publish(5, bytes(layout.MODEL_SIZE))
    mapping.publish(5, bytes(layout.MODEL_SIZE))
    assert seen == ["publish.begin"]
