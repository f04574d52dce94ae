"""Recordings: the exact bytes of every slab over time, in one file, and a driver that plays them.

``Recorder`` writes, ``Recording`` reads, ``ReplayDriver`` answers like a device. The room needs the extra ``record``
(mcap); that is only looked for where a file is opened. See docs/recording.md.
"""

from neuron_ds.record.format import World
from neuron_ds.record.player import Moment, Player
from neuron_ds.record.recorder import Recorder
from neuron_ds.record.recording import Recording

__all__ = ["Moment", "Player", "Recorder", "Recording", "World"]
