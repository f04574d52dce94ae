"""One live picture of the devices, which the terminal and the web page both draw: Samples in, Frames out."""

from __future__ import annotations

from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource, Source

__all__ = ["Live", "LiveSource", "Source"]
