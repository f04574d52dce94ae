"""A recording in the forms in which people analyse: Parquet and CSV in long form, and a trace for a timeline's viewer.

``export`` writes one form into a file; ``writing`` is a file that is there as a whole or not at all. Parquet needs the
extra ``parquet``, which is only looked for where it is written. See docs/analyse.md.
"""

from neuron_ds.export.forms import FORMS, check_form, export, form_of
from neuron_ds.export.output import writing
from neuron_ds.export.steps import Step, steps_of

__all__ = ["FORMS", "Step", "check_form", "export", "form_of", "steps_of", "writing"]
