"""The stream of neuron-monitor: Samples in, one JSON report per line out. See docs/monitor.md.

This room needs the extra ``monitor`` (psutil, msgspec). It knows what consumers of that stream expect; it knows no slab
and no driver, only Samples.
"""

from neuron_ds.monitor.config import Config, load
from neuron_ds.monitor.stream import Monitor

__all__ = ["Config", "Monitor", "load"]
