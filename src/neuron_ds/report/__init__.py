"""A recording as one page that opens from disk: what happened on which core, to which process, and what was found.

``survey`` reads the recording once and gives plain data, ``page`` makes HTML of that. Nothing is fetched, no script
runs. See docs/analyse.md.
"""

from neuron_ds.report.document import page
from neuron_ds.report.reading import survey

__all__ = ["page", "survey"]
